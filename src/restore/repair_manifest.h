// Publishes the manifest of a committed attempt anew if it does not verify any more.
// docs/commit_protocol.md, "Repairing a manifest". Stateless; any thread.
#pragma once

#include <string>

#include "format/records.h"
#include "manifest/run_directory.h"
#include "restore/snapshot.h"
#include "storage/vfs.h"

namespace deepfreeze {

// The manifest that would be published, and the damaged text that it would replace.
struct RepairPlan {
  AttemptName name;
  Manifest manifest;
  std::string damaged;  // the text of manifest.json as it stands
};

// Plans from the headers alone, of a listing just made. The error says why no repair is possible:
// the manifest verifies or can't be read, a file is missing, torn or another attempt's, the text no
// longer shows that the attempt was committed, or the current line does not pass through it, as far
// as the claims show (kFenced).
[[nodiscard]] Result<RepairPlan> plan_repair(Vfs& vfs, const RunListing& listing,
                                             const AttemptName& name);

// Reads and checks all data, then publishes. Returns the name of the copy that is kept of the
// damaged manifest. kCorrupt: a block or the tree does not verify. kCancelled: somebody else has
// changed the attempt meanwhile. After any error the damaged manifest is still in its place, except
// after "outcome unknown": then either it or the new one is.
[[nodiscard]] Result<std::string> repair_manifest(Vfs& vfs, const RepairPlan& plan,
                                                  const ReadSettings& settings);

}  // namespace deepfreeze

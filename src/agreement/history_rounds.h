// Steps O2 and O3 of docs/decisions/0026: all nodes of a job get the run's record and its claims.
// For the thread of the Checkpointer's caller.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "agreement/node_map.h"
#include "deepfreeze/ranks.h"
#include "format/records.h"
#include "manifest/run_directory.h"
#include "save/run_writer.h"
#include "storage/vfs.h"

namespace deepfreeze {

struct SharedHistory {
  RunWriter::Highest highest;  // of all nodes, and any line
  // Of the caller's directory, if it leads its node: claims of other nodes that win against one
  // here of the same number.
  std::vector<GenerationRecord> winners;
};

// Collective. Each leader reads its directory `vfs`, and places durably the records that others
// have and it lacks: claims first, the newest of them before the others, so that nobody takes the
// directory for a run that lacks claims. If no node has a run, rank 0 makes it. Errors are every
// rank's; kMismatch: see merge_histories(). kFenced: a process of another job claims meanwhile.
[[nodiscard]] Result<SharedHistory> share_history(RankGroup& ranks, const NodeMap& nodes, Vfs& vfs,
                                                  const std::optional<ParentPoint>& parent);

// Whether an attempt of that generation is here, committed or in doubt: it may be committed
// elsewhere.
[[nodiscard]] bool is_used(const RunListing& listing, std::uint64_t generation);

// Places a text under a new name, durably. kFenced if another text has the name.
[[nodiscard]] Status place_durably(Vfs& vfs, const std::string& name, const std::string& text);

}  // namespace deepfreeze

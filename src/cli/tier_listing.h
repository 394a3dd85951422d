// A run's farther tiers, as a user names them to a verb that only looks at them. Read-only.
#pragma once

#include <memory>
#include <string>

#include "manifest/run_directory.h"
#include "storage/vfs.h"

namespace deepfreeze {

struct ListedTier {
  std::unique_ptr<Vfs> vfs;  // null: there is no run, nothing was copied to it yet
  RunListing listing;
};

// kMismatch if the tier holds another run than `run`, which lies at `run_path`.
[[nodiscard]] Result<ListedTier> list_tier(const std::string& path, const RunRecord& run,
                                           const std::string& run_path);

}  // namespace deepfreeze

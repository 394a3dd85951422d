// The farther tiers of a run, as a user names them. Any thread.
#pragma once

#include <filesystem>
#include <span>
#include <vector>

#include "deepfreeze/options.h"
#include "tiering/flusher.h"

namespace deepfreeze {

// Opens, and unless `read_only` makes, the directories of the tiers. kInvalidArgument: two of them
// are one directory, or one lies in another or in the run's; or a rule makes no sense.
[[nodiscard]] Result<std::vector<FarTier>> open_tiers(const std::filesystem::path& root,
                                                      std::span<const Tier> wanted, bool read_only);

}  // namespace deepfreeze

// How much each of several ranks takes of what any of them can write. A pure function.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace deepfreeze {

// Divides `bytes` so that the greatest load is as small as it can be, and the loads are as equal as
// that leaves them: the least loaded are filled up to one level. By place in `loads`; their sum is
// `bytes`. At least one load.
[[nodiscard]] std::vector<std::uint64_t> fill_quotas(std::span<const std::uint64_t> loads,
                                                     std::uint64_t bytes);

}  // namespace deepfreeze

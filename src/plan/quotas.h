// Divides bytes that any of several ranks can write among these ranks. A pure function.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace deepfreeze {

// Divides `bytes` so that the greatest load is as small as possible, and the loads are otherwise as
// equal as possible: the least loaded are filled up to one level. Returns one quota per entry of
// `loads`, of which there is at least one; the quotas add up to `bytes`.
[[nodiscard]] std::vector<std::uint64_t> fill_quotas(std::span<const std::uint64_t> loads,
                                                     std::uint64_t bytes);

}  // namespace deepfreeze

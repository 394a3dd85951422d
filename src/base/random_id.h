// Identifiers that no other process draws.
#pragma once

#include <cstdint>

namespace deepfreeze {

// 64 bits from the kernel. Any thread.
[[nodiscard]] std::uint64_t random_id();

}  // namespace deepfreeze

// A copy and the checksum of it in one pass over memory. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace deepfreeze {

// Copies `from` to `to`, which has the same size, and returns the CRC-32C of the bytes that it
// stored, also where another thread writes to `from` meanwhile. Where the processor can, `to`
// does not pass through the caches, which training needs more than a copy on its way to a disk.
// All that was stored is seen by whoever synchronises with this thread afterwards.
[[nodiscard]] std::uint32_t copy_with_crc32c(std::span<const std::byte> from,
                                             std::span<std::byte> to);

}  // namespace deepfreeze

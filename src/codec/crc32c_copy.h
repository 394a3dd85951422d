// A copy and the checksum of it in one pass over memory. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace deepfreeze {

// Copies `from` to `to`, which has the same size, and returns the CRC-32C of the bytes that it
// stored, even if another thread writes to `from` meanwhile. If the processor supports it, the
// stores bypass the caches: training needs the caches more than a copy on its way to a disk does. A
// thread that synchronises with this one afterwards sees all stored bytes.
[[nodiscard]] std::uint32_t copy_with_crc32c(std::span<const std::byte> from,
                                             std::span<std::byte> to);

}  // namespace deepfreeze

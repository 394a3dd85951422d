// CRC-32C (Castagnoli, RFC 3720 appendix B.4), by ISA-L. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace deepfreeze {

// crc32c of "123456789" is 0xe3069283.
[[nodiscard]] std::uint32_t crc32c(std::span<const std::byte> bytes);

// The checksum of A followed by B, from that of A.
[[nodiscard]] std::uint32_t crc32c_extend(std::uint32_t crc, std::span<const std::byte> bytes);

// The checksum of A followed by B, from those of both and the size of B: a microsecond's work for
// any size.
[[nodiscard]] std::uint32_t crc32c_combine(std::uint32_t crc_of_a, std::uint32_t crc_of_b,
                                           std::uint64_t bytes_of_b);

inline constexpr std::size_t kCrcLineBytes = 64;

// The checksum of each of these lines, which lie apart; side by side, and so several times faster
// than one after the other. `sums` has room for as many.
void crc32c_of_lines(std::span<const std::byte* const> lines, std::span<std::uint32_t> sums);

}  // namespace deepfreeze

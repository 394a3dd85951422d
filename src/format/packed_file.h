// A file of packed blocks, as a tier may hold a data file; docs/format.md, "Packed files". Pure.
//
// Little-endian:
//   the lead, a page:  "DFpacked", u32 version, u32 0, u64 header bytes, u64 data bytes, zeros,
//                      u32 CRC-32C of all before it
//   the header         of the plain file, as it is
//   the blocks         one after the other: packed (codec/pack.h), or as they are if their size is
//                      that of the plain block
//   the index:         for each block u32 bytes, u32 CRC-32C, both as it is stored;
//                      0 or 8 zeros, so that the file is not as long as the plain one; the trailer,
//                      64 bytes: u64 bytes of all stored blocks, u64 header bytes, u64 data bytes,
//                      u32 CRC-32C of the plain file, u32 CRC-32C of this one before the index,
//                      u32 zeros before the trailer, 16 zeros, u32 CRC-32C of the index so far,
//                      "DFpckEnd"
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "deepfreeze/result.h"
#include "format/layout.h"

namespace deepfreeze {

inline constexpr std::uint32_t kPackedVersion = 1;
inline constexpr std::uint64_t kPackedLeadBytes = kPageBytes;
inline constexpr std::uint64_t kPackedTrailerBytes = 64;
inline constexpr std::uint64_t kPackedPaddingBytes = 8;

// The sizes of the plain file.
struct PackedLead {
  std::uint64_t header_bytes = 0;  // whole pages
  std::uint64_t data_bytes = 0;
  [[nodiscard]] std::uint64_t plain_bytes() const { return header_bytes + data_bytes; }
  bool operator==(const PackedLead&) const = default;
};

struct PackedBlock {
  std::uint32_t bytes = 0;
  std::uint32_t crc = 0;
  bool operator==(const PackedBlock&) const = default;
};

struct PackedIndex {
  std::vector<PackedBlock> blocks;
  std::uint32_t plain_crc = 0;   // of the whole plain file
  std::uint32_t stored_crc = 0;  // of the packed file up to the index
  bool operator==(const PackedIndex&) const = default;
};

// Whether a file begins as a packed one does. No safetensors file can: its header would be larger
// than any reader takes.
[[nodiscard]] bool has_packed_mark(std::span<const std::byte> first_bytes);

[[nodiscard]] std::vector<std::byte> encode_packed_lead(const PackedLead& lead);
// `page` has kPackedLeadBytes. kUnsupported: of a newer version. kCorrupt.
[[nodiscard]] Result<PackedLead> decode_packed_lead(std::span<const std::byte> page);

[[nodiscard]] std::vector<std::byte> encode_packed_index(const PackedLead& lead,
                                                         const PackedIndex& index);
// The most that a packed file of these sizes has, and the least.
[[nodiscard]] std::uint64_t packed_bytes_max(const PackedLead& lead);
[[nodiscard]] bool is_packed_size(const PackedLead& lead, std::uint64_t file_bytes);
// The most that an index has: a reader takes so much off the end of the file, if that is as long.
[[nodiscard]] std::uint64_t packed_index_bytes_max(const PackedLead& lead);
// `tail` are the last bytes of a file of `file_bytes` bytes: packed_index_bytes_max(), or all
// behind the header. kCorrupt.
[[nodiscard]] Result<PackedIndex> decode_packed_index(const PackedLead& lead,
                                                      std::uint64_t file_bytes,
                                                      std::span<const std::byte> tail);

// The bytes of a plain block.
[[nodiscard]] std::uint64_t plain_block_bytes(const PackedLead& lead, std::uint64_t block);

}  // namespace deepfreeze

// The bytes of a packed file, in order, as pieces of whole pages, which uploads want. One thread at
// a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/mapped_memory.h"
#include "deepfreeze/result.h"
#include "format/packed_file.h"

namespace deepfreeze {

// Memory for the stored blocks of a slab, and for bytes that were left over before it.
inline constexpr std::uint64_t kPackedChunkBytes = kSlabBytes + kPageBytes;

struct Piece {
  std::span<const std::byte> bytes;
  std::uint32_t crc = 0;
};

class PackedStream {
 public:
  explicit PackedStream(const PackedLead& lead) : lead_(lead) {
    blocks_.reserve(block_count(lead.data_bytes));
  }

  // The first piece, before the header; in `memory`, a page.
  [[nodiscard]] Piece lead(std::span<std::byte> memory);
  // The header and, if can_pass(), plain blocks of whole pages are pieces as they are.
  void pass_header(std::uint32_t crc) { add(crc, lead_.header_bytes); }
  [[nodiscard]] bool can_pass(std::uint64_t bytes) const {
    return left_over_ == 0 && bytes % kPageBytes == 0;
  }
  void pass_blocks(std::span<const PackedBlock> blocks, std::uint32_t crc);

  // Stored blocks of at most kSlabBytes become a piece in `memory`, which has kPackedChunkBytes and
  // begins with a page. It may be empty: bytes that fill no page wait for the next one.
  void begin_chunk(std::span<std::byte> memory);
  void add_block(std::span<const std::byte> stored, std::uint32_t crc);
  // kIo: the memory does not have the checksums of the blocks.
  [[nodiscard]] Result<Piece> end_chunk();

  // The rest, with the index. The stream is over. Errors as of end_chunk().
  struct Last {
    MappedMemory memory;
    Piece piece;
  };
  [[nodiscard]] Result<Last> last(std::uint32_t plain_crc);
  // The sum of all pieces.
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

 private:
  void add(std::uint32_t crc, std::uint64_t bytes);

  const PackedLead lead_;
  std::vector<PackedBlock> blocks_;
  std::uint64_t bytes_ = 0;
  std::uint32_t crc_ = 0;  // of them
  std::array<std::byte, kPageBytes> rest_{};
  std::size_t left_over_ = 0;    // bytes of rest_
  std::uint32_t rest_crc_ = 0;   // of them
  std::uint32_t chunk_crc_ = 0;  // of the chunk so far, by the checksums of its blocks
  std::span<std::byte> chunk_;
  std::size_t filled_ = 0;
};

}  // namespace deepfreeze

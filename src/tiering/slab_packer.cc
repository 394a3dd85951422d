#include "tiering/slab_packer.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "base/clock.h"
#include "base/try.h"
#include "codec/crc32c.h"
#include "format/block_crcs.h"

namespace deepfreeze {

Result<SlabPacker> SlabPacker::make(const ShardHeader& header, std::uint64_t header_bytes,
                                    PackingJudge& judge) {
  DF_TRY(BlockPacker packer, BlockPacker::make(header));
  const PackedLead lead{.header_bytes = header_bytes, .data_bytes = header.data_bytes};
  return SlabPacker(header, lead, judge, std::move(packer));
}

Piece SlabPacker::lead(std::span<std::byte> memory, std::uint32_t header_crc) {
  const Piece piece = stream_.lead(memory);
  stream_.pass_header(header_crc);
  header_crc_ = header_crc;
  return piece;
}

// Nothing is copied.
Piece SlabPacker::pass(std::uint64_t begin, std::span<const std::byte> slab, std::uint32_t crc) {
  std::array<PackedBlock, kSlabBytes / kBlockBytes> blocks;
  std::size_t count = 0;
  for (std::uint64_t at = begin; at < begin + slab.size(); at += kBlockBytes) {
    blocks[count++] = {
        .bytes = static_cast<std::uint32_t>(plain_block_bytes(lead_, at / kBlockBytes)),
        .crc = header_.block_crcs[at / kBlockBytes]};
  }
  stream_.pass_blocks(std::span(blocks).first(count), crc);
  return {.bytes = slab, .crc = crc};
}

Result<Piece> SlabPacker::pack(std::uint64_t begin, std::span<const std::byte> slab,
                               std::uint32_t crc, std::span<std::byte> memory) {
  const bool pays = judge_.pays(lead_.plain_bytes());
  if (!pays && stream_.can_pass(slab.size())) return pass(begin, slab, crc);
  const auto started = Monotonic::now();
  stream_.begin_chunk(memory);
  for (std::uint64_t at = 0; at < slab.size(); at += kBlockBytes) {
    const std::uint64_t block = (begin + at) / kBlockBytes;
    const auto plain = slab.subspan(at, plain_block_bytes(lead_, block));
    const std::uint32_t plain_crc = header_.block_crcs[block];
    const auto stored = pays ? packer_.store(block, plain, plain_crc)
                             : BlockPacker::Stored{.bytes = plain, .crc = plain_crc};
    stream_.add_block(stored.bytes, stored.crc);
  }
  DF_TRY(const Piece piece, stream_.end_chunk());
  const std::chrono::duration<double> took = Monotonic::now() - started;
  // The first one also waits for memory that nobody has touched; a short file has no other.
  const bool counts = std::exchange(is_warm_, true) || lead_.data_bytes <= 2 * kSlabBytes;
  if (pays && counts) judge_.note_packed(slab.size(), took.count());
  return piece;
}

Result<PackedStream::Last> SlabPacker::last() {
  const std::uint32_t of_data = crc_of_blocks(header_.block_crcs, {0, header_.data_bytes});
  return stream_.last(crc32c_combine(header_crc_, of_data, header_.data_bytes));
}

}  // namespace deepfreeze

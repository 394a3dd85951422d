// Makes a packed file of the slabs of a plain one, as long as packing pays. One thread at a time.
#pragma once

#include <cstdint>
#include <span>

#include "deepfreeze/result.h"
#include "format/shard_header.h"
#include "packed/block_packer.h"
#include "packed/packed_stream.h"
#include "tiering/packing_judge.h"

namespace deepfreeze {

// A file with less data stays plain.
inline constexpr std::uint64_t kPackedDataMin = 1U << 20U;

class SlabPacker {
 public:
  // `header` and `judge` outlive it. kUnsupported without libzstd.
  [[nodiscard]] static Result<SlabPacker> make(const ShardHeader& header,
                                               std::uint64_t header_bytes, PackingJudge& judge);

  // The pieces before the slabs: the lead, in `memory`; the header itself is the second one.
  [[nodiscard]] Piece lead(std::span<std::byte> memory, std::uint32_t header_crc);
  // The piece for the slab that begins at `begin` of the data and has the checksum `crc`: the slab
  // itself, or bytes in `memory`, of kPackedChunkBytes. Its blocks have been verified.
  [[nodiscard]] Result<Piece> pack(std::uint64_t begin, std::span<const std::byte> slab,
                                   std::uint32_t crc, std::span<std::byte> memory);
  [[nodiscard]] Result<PackedStream::Last> last();

 private:
  SlabPacker(const ShardHeader& header, const PackedLead& lead, PackingJudge& judge,
             BlockPacker packer)
      : header_(header), lead_(lead), judge_(judge), packer_(std::move(packer)), stream_(lead) {}
  [[nodiscard]] Piece pass(std::uint64_t begin, std::span<const std::byte> slab, std::uint32_t crc);

  const ShardHeader& header_;
  const PackedLead lead_;
  PackingJudge& judge_;
  BlockPacker packer_;
  PackedStream stream_;
  std::uint32_t header_crc_ = 0;
  bool is_warm_ = false;  // its memory has been used
};

}  // namespace deepfreeze

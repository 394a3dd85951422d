#include "packed/block_packer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/try.h"
#include "codec/crc32c.h"
#include "format/layout.h"

namespace deepfreeze {
namespace {

constexpr std::size_t kGainInverse = 16;

}  // namespace

Result<BlockPacker> BlockPacker::make(const ShardHeader& header) {
  DF_TRY(Packer packer, Packer::make());
  DF_TRY(Unpacker unpacker, Unpacker::make());
  std::vector<Run> runs;
  for (const ShardEntry& entry : header.entries) {  // in file order, without holes
    if (entry.extent.size() == 0) continue;
    runs.push_back(
        {.end = entry.extent.end, .element_bytes = dtype_bytes(entry.spec.dtype), .next_try = 0});
  }
  return BlockPacker(std::move(packer), std::move(unpacker), std::move(runs));
}

BlockPacker::Run* BlockPacker::run_at(std::uint64_t place) {
  const auto run = std::ranges::upper_bound(runs_, place, {}, &Run::end);
  return run == runs_.end() ? nullptr : &*run;
}

// Elements are those of the tensor in the middle of the block.
BlockPacker::Stored BlockPacker::store(std::uint64_t block, std::span<const std::byte> plain,
                                       std::uint32_t plain_crc) {
  const Stored as_it_is{.bytes = plain, .crc = plain_crc};
  Run* const run = run_at(block * kBlockBytes + plain.size() / 2);
  if (run == nullptr || block < run->next_try) return as_it_is;
  const auto packed = packer_.pack(plain, run->element_bytes);
  if (packed.empty() || packed.size() > plain.size() - plain.size() / kGainInverse) {
    run->next_try = block + kTriedEvery;
    return as_it_is;
  }
  const std::uint32_t crc = crc32c(packed);
  const auto back = std::span(back_).first(plain.size());
  const Status unpacked = unpacker_.unpack(packed, back);
  // A fault of memory or of the library: the plain bytes have been verified.
  if (!unpacked || std::memcmp(back.data(), plain.data(), plain.size()) != 0) return as_it_is;
  return {.bytes = packed, .crc = crc};
}

}  // namespace deepfreeze

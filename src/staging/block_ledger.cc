#include "staging/block_ledger.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/trace.h"
#include "codec/crc32c.h"

namespace deepfreeze {
namespace {

// The number of blocks in each slab; a block beyond the end of its file's data has no bytes and
// does not count.
std::vector<std::atomic<std::uint64_t>> slab_lacks(const Image& image, std::uint64_t block_bytes) {
  std::vector<std::atomic<std::uint64_t>> lack(image.slab_count());
  // relaxed, here and below: no other thread has the ledger yet.
  for (std::uint64_t slab = 0; slab < lack.size(); ++slab) {
    const std::uint64_t bytes = image.held(slab * image.slab_bytes(), image.slab_bytes());
    lack[slab].store(ceil_div(bytes, block_bytes), std::memory_order_relaxed);
  }
  return lack;
}

// The number of bytes in each block. Works section by section: there may be hundreds of thousands
// of blocks.
std::vector<std::atomic<std::uint64_t>> block_lacks(const Image& image, std::uint64_t block_bytes) {
  std::vector<std::atomic<std::uint64_t>> lack(ceil_div(image.end(), block_bytes));
  for (const Section& section : image.sections()) {
    std::uint64_t block = section.begin / block_bytes;
    for (std::uint64_t at = section.begin; at < section.end; at += block_bytes) {
      lack[block++].store(std::min(block_bytes, section.end - at), std::memory_order_relaxed);
    }
  }
  return lack;
}

// True for the one caller that takes the last. acq_rel: release hands over this thread's work on
// the part, acquire gives the last caller the work of all others.
bool takes_last(std::atomic<std::uint64_t>& lack, std::uint64_t amount) {
  return lack.fetch_sub(amount, std::memory_order_acq_rel) == amount;
}

}  // namespace

BlockLedger::BlockLedger(const Image& image, std::uint64_t block_bytes,
                         std::function<void(std::size_t)> on_slab)
    : image_(image),
      block_bytes_(block_bytes),
      on_slab_(std::move(on_slab)),
      block_crcs_(ceil_div(image.end(), block_bytes)),
      block_lack_(block_lacks(image, block_bytes)),
      slab_lack_(slab_lacks(image, block_bytes)),
      slabs_lack_(slab_lack_.size()) {}

bool BlockLedger::arrived(std::uint64_t block, std::uint64_t bytes, BlockCrc crc) {
  return takes_last(block_lack_[block], bytes) && finish_block(block, crc);
}

// acquire: pairs with the release of every finished slab, so all CRCs are seen.
bool BlockLedger::complete() const { return slabs_lack_.load(std::memory_order_acquire) == 0; }

bool BlockLedger::finish_block(std::uint64_t block, BlockCrc crc) {
  const std::uint64_t begin = block * block_bytes_;
  const std::uint64_t bytes = image_.held(begin, block_bytes_);
  block_crcs_[block] = crc ? *crc : timed_crc(image_.at(begin, bytes));
  const std::uint64_t slab = begin / image_.slab_bytes();
  if (!takes_last(slab_lack_[slab], 1)) return false;
  on_slab_(slab);
  return takes_last(slabs_lack_, 1);
}

std::uint32_t BlockLedger::timed_crc(std::span<const std::byte> bytes) {
  const trace::Span span("checksum", bytes.size());
  const auto started = Monotonic::now();
  const std::uint32_t crc = crc32c(bytes);
  // relaxed: for display
  checksum_nanos_.fetch_add(nanos_since(started), std::memory_order_relaxed);
  return crc;
}

}  // namespace deepfreeze

#include "slab_checksums.h"

#include <algorithm>
#include <array>
#include <utility>

#include "codec/crc32c.h"
#include "format/layout.h"

namespace deepfreeze {
namespace {

constexpr std::size_t kSlabBlocks = kSlabBytes / kBlockBytes;
static_assert(kSlabBytes % kBlockBytes == 0);

}  // namespace

SlabChecksums::SlabChecksums(const Image& image, std::function<void(std::size_t slab)> on_slab)
    : image_(image),
      on_slab_(std::move(on_slab)),
      block_crcs_(block_count(image.data_bytes())),
      is_finished_(image.slab_count()) {}

void SlabChecksums::help() {
  // relaxed: it deals slabs out; what they hold is published by their release to the helpers.
  for (auto slab = next_.fetch_add(1, std::memory_order_relaxed); slab < image_.slab_count();
       slab = next_.fetch_add(1, std::memory_order_relaxed)) {
    checksum(slab);
  }
}

void SlabChecksums::finish() {
  help();
  for (std::size_t slab = 0; slab < image_.slab_count(); ++slab) {
    // relaxed: the sums themselves go through on_slab.
    if (!is_finished_[slab].load(std::memory_order_relaxed)) checksum(slab);
  }
}

void SlabChecksums::skip() {
  for (std::size_t slab = 0; slab < image_.slab_count(); ++slab) {
    if (count(slab)) on_slab_(slab);
  }
}

// False where another thread was first. Its sums are those of the slab as it was: ours may be of
// memory that has changed since.
bool SlabChecksums::count(std::size_t slab) {
  return !is_finished_[slab].exchange(true, std::memory_order_relaxed);
}

void SlabChecksums::checksum(std::size_t slab) {
  std::array<std::uint32_t, kSlabBlocks> crcs{};
  const std::span<const std::byte> bytes = image_.slab(slab);
  std::size_t blocks = 0;
  for (std::size_t at = 0; at < bytes.size(); at += kBlockBytes, ++blocks) {
    crcs[blocks] = crc32c(bytes.subspan(at, std::min(kBlockBytes, bytes.size() - at)));
  }
  if (!count(slab)) return;
  const auto place = block_crcs_.begin() + static_cast<std::ptrdiff_t>(slab * kSlabBlocks);
  std::copy_n(crcs.begin(), blocks, place);
  on_slab_(slab);
}

}  // namespace deepfreeze

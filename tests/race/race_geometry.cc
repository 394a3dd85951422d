#include "race/race_geometry.h"

#include <algorithm>
#include <cstring>

#include "codec/crc32c.h"

namespace deepfreeze {
namespace {

constexpr std::uint64_t kSmallestBlock = 64;  // a witness line
constexpr std::uint64_t kCoarseBlock = 4'096;
constexpr std::uint64_t kBlocksMax = 30;
constexpr std::uint64_t kImageBytesMax = kBlocksMax * 4 * kCoarseBlock;
constexpr std::uint64_t kBytesBetweenSteps = 977;

// Each step sees another part of the same random bytes.
std::vector<std::byte> random_bytes() {
  Random random(1);
  std::vector<std::byte> bytes(kImageBytesMax + kStepsMax * kBytesBetweenSteps);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

}  // namespace

RaceGeometry RaceGeometry::choose(Random& random) {
  RaceGeometry chosen;
  const bool coarse = random() % 8 == 0;  // copies that last, to be taken over
  chosen.block_bytes = (coarse ? kCoarseBlock : kSmallestBlock) << random() % 3;
  chosen.slab_bytes = chosen.block_bytes << random() % 3;
  chosen.image_bytes = 1 + random() % (chosen.block_bytes * kBlocksMax);
  const std::uint64_t bytes_max = random() % 2 == 0 ? 2'000 : 200;
  chosen.item_bytes_max = 1 + random() % bytes_max;
  if (coarse) chosen.item_bytes_max *= 32;
  chosen.guards = 1 + static_cast<std::uint32_t>(random() % 7);
  const std::uint64_t slabs = chosen.image_bytes / chosen.slab_bytes;
  if (random() % 4 == 0 && slabs > 2) chosen.ring_slabs = 2 + random() % std::min(slabs - 2, 3UL);
  return chosen;
}

std::span<const std::byte> bytes_of(std::uint64_t step) {
  static const std::vector<std::byte> all = random_bytes();
  return std::span(all).subspan(step * kBytesBetweenSteps, kImageBytesMax);
}

TrainerMemory::TrainerMemory(const RaceGeometry& geometry, Random& random) {
  for (std::uint64_t at = 0; at < geometry.image_bytes;) {
    const std::uint64_t bytes =
        std::min(random() % (geometry.item_bytes_max + 1), geometry.image_bytes - at);
    tensors_.emplace_back(bytes);
    const auto guard = static_cast<std::uint32_t>(random() % (geometry.guards + 1));
    items_.push_back({.source = tensors_.back(), .offset = at, .guard = guard});
    at += bytes;
  }
}

void TrainerMemory::write(std::uint32_t guard, std::uint64_t step) {
  for (std::size_t i = 0; i < items_.size(); ++i) {
    if (items_[i].guard != guard) continue;
    const auto bytes = bytes_of(step).subspan(items_[i].offset, tensors_[i].size());
    if (!bytes.empty()) std::memcpy(tensors_[i].data(), bytes.data(), bytes.size());
  }
}

std::vector<std::uint32_t> block_crcs(const RaceGeometry& geometry, std::uint64_t step) {
  std::vector<std::uint32_t> crcs;
  for (std::uint64_t at = 0; at < geometry.image_bytes; at += geometry.block_bytes) {
    const std::uint64_t bytes = std::min(geometry.block_bytes, geometry.image_bytes - at);
    crcs.push_back(crc32c(bytes_of(step).subspan(at, bytes)));
  }
  return crcs;
}

}  // namespace deepfreeze

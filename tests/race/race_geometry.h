// The geometry that one round of the race captures again and again: items, guards, sizes of blocks
// and slabs, all so small that a session takes microseconds. And the trainer's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "arena/capture_item.h"
#include "race/jitter.h"

namespace deepfreeze {

struct RaceGeometry {
  std::uint64_t image_bytes = 0;
  std::uint64_t block_bytes = 0;
  std::uint64_t slab_bytes = 0;
  std::uint64_t ring_slabs = 0;  // 0: no ring
  std::uint32_t guards = 0;      // and group 0
  std::uint64_t item_bytes_max = 0;

  [[nodiscard]] static RaceGeometry choose(Random& random);
  [[nodiscard]] std::uint64_t memory_bytes() const {
    return ring_slabs > 0 ? ring_slabs * slab_bytes : image_bytes;
  }
};

// The bytes of an image, and so of the trainer, in a step: random, at most kStepsMax of them.
// Written by the page, not by the byte: under tsan each byte that is written costs as much as a
// lock.
[[nodiscard]] std::span<const std::byte> bytes_of(std::uint64_t step);
inline constexpr std::uint64_t kStepsMax = 16;

// The tensors of a training run, each in memory of its own.
class TrainerMemory {
 public:
  TrainerMemory(const RaceGeometry& geometry, Random& random);

  // Every tensor of a guard gets the bytes that it has in this step.
  void write(std::uint32_t guard, std::uint64_t step);
  [[nodiscard]] const std::vector<CaptureItem>& items() const { return items_; }

 private:
  std::vector<std::vector<std::byte>> tensors_;
  std::vector<CaptureItem> items_;
};

// As they must be.
[[nodiscard]] std::vector<std::uint32_t> block_crcs(const RaceGeometry& geometry,
                                                    std::uint64_t step);

}  // namespace deepfreeze

// Where the data section of one file lies in memory: all of it, or, in ring mode, only the slabs
// that are between capture and disk, each in the place of an older one. A view: it owns nothing.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/checked_math.h"

namespace deepfreeze {

class Image {
 public:
  Image() = default;
  // `memory` holds all of `data_bytes`, or a whole number of slabs.
  Image(std::span<std::byte> memory, std::uint64_t data_bytes, std::uint64_t slab_bytes)
      : memory_(memory), data_bytes_(data_bytes), slab_bytes_(slab_bytes) {}

  [[nodiscard]] std::uint64_t data_bytes() const { return data_bytes_; }
  [[nodiscard]] std::uint64_t slab_bytes() const { return slab_bytes_; }
  [[nodiscard]] std::uint64_t slab_count() const { return ceil_div(data_bytes_, slab_bytes_); }
  [[nodiscard]] bool is_ring() const { return memory_.size() < data_bytes_; }
  // Slabs that lie in memory at once: slab i takes the place of slab i - slots().
  [[nodiscard]] std::uint64_t slots() const {
    return is_ring() ? memory_.size() / slab_bytes_ : slab_count();
  }

  // The place of `bytes` bytes at an offset of the data section; they lie within one slab.
  [[nodiscard]] std::span<std::byte> at(std::uint64_t offset, std::uint64_t bytes) const {
    return memory_.subspan(is_ring() ? offset % memory_.size() : offset, bytes);
  }
  [[nodiscard]] std::span<std::byte> slab(std::uint64_t index) const {
    const std::uint64_t begin = index * slab_bytes_;
    return at(begin, std::min(slab_bytes_, data_bytes_ - begin));
  }

 private:
  std::span<std::byte> memory_;
  std::uint64_t data_bytes_ = 0;
  std::uint64_t slab_bytes_ = 1;
};

}  // namespace deepfreeze

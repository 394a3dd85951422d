// The memory of the data sections of one save, one after the other: all of them, or, in ring mode,
// only the slabs that are between capture and disk, each in the place of an older one. A view: it
// does not own the memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "base/checked_math.h"

namespace deepfreeze {

// The data of one file, in offsets of the image. It begins at a slab.
struct Section {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  [[nodiscard]] std::uint64_t size() const { return end - begin; }
};

// The rest of a file's last slab stays unused. Only the last sections may be empty.
[[nodiscard]] inline std::vector<Section> lay_sections(
    std::span<const std::uint64_t> bytes_of_sections, std::uint64_t slab_bytes) {
  std::vector<Section> sections;
  std::uint64_t end = 0;
  for (const std::uint64_t bytes : bytes_of_sections) {
    const std::uint64_t begin = bytes == 0 ? end : round_up(end, slab_bytes);
    end = begin + bytes;
    sections.push_back({.begin = begin, .end = end});
  }
  return sections;
}

class Image {
 public:
  Image() = default;
  // `memory` holds all up to the end of the last section, or a whole number of slabs. At least
  // one section, each beginning at a slab behind the one before.
  Image(std::span<std::byte> memory, std::vector<Section> sections, std::uint64_t slab_bytes)
      : memory_(memory), sections_(std::move(sections)), slab_bytes_(slab_bytes) {}
  // An image of one file.
  Image(std::span<std::byte> memory, std::uint64_t data_bytes, std::uint64_t slab_bytes)
      : Image(memory, {Section{.begin = 0, .end = data_bytes}}, slab_bytes) {}

  [[nodiscard]] std::span<const Section> sections() const { return sections_; }
  [[nodiscard]] std::uint64_t end() const { return sections_.empty() ? 0 : sections_.back().end; }
  [[nodiscard]] std::uint64_t slab_bytes() const { return slab_bytes_; }
  [[nodiscard]] std::uint64_t slab_count() const { return ceil_div(end(), slab_bytes_); }
  [[nodiscard]] bool is_ring() const { return memory_.size() < end(); }
  // Slabs that lie in memory at once: slab i takes the place of slab i - slots().
  [[nodiscard]] std::uint64_t slots() const {
    return is_ring() ? memory_.size() / slab_bytes_ : slab_count();
  }

  // A view of the same memory with only the first `sections` sections.
  [[nodiscard]] Image first(std::size_t sections) const {
    return {memory_,
            {sections_.begin(), sections_.begin() + static_cast<std::ptrdiff_t>(sections)},
            slab_bytes_};
  }

  // The index of the section that has bytes in a slab.
  [[nodiscard]] std::size_t section_of(std::uint64_t slab) const {
    const auto behind =
        std::ranges::upper_bound(sections_, slab * slab_bytes_, std::less<>(), &Section::begin);
    return static_cast<std::size_t>(behind - sections_.begin()) - 1;
  }
  // How many of `bytes` bytes from an offset on belong to a section; they lie within one slab.
  [[nodiscard]] std::uint64_t held(std::uint64_t offset, std::uint64_t bytes) const {
    const std::uint64_t end = sections_[section_of(offset / slab_bytes_)].end;
    return offset < end ? std::min(bytes, end - offset) : 0;
  }

  // The place of `bytes` bytes at an offset; in a ring they lie within one slab.
  [[nodiscard]] std::span<std::byte> at(std::uint64_t offset, std::uint64_t bytes) const {
    return memory_.subspan(is_ring() ? offset % memory_.size() : offset, bytes);
  }
  [[nodiscard]] std::span<std::byte> slab(std::uint64_t index) const {
    const std::uint64_t begin = index * slab_bytes_;
    return at(begin, held(begin, slab_bytes_));
  }

 private:
  std::span<std::byte> memory_;
  std::vector<Section> sections_;
  std::uint64_t slab_bytes_ = 1;
};

}  // namespace deepfreeze

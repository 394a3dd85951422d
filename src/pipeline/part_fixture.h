// Parts for tests: data of any size, its header, and the contents that the file must then have.
#pragma once

#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/checked_math.h"
#include "base/mapped_memory.h"
#include "format/layout.h"
#include "pipeline/part_writer.h"

namespace deepfreeze {

inline constexpr std::uint64_t kHeader = 2 * kPageBytes;
inline constexpr std::uint64_t kThreeSlabs = 2 * kSlabBytes + 12'345;
inline const std::string kName = "rank.part";

// Random bytes that begin at a page and end anywhere; bytes that must not be seen stand behind
// them.
class Data {
 public:
  explicit Data(std::uint64_t bytes) {
    memory_ = MappedMemory::allocate(round_up(bytes + 1, kPageBytes)).value();
    std::mt19937 random(static_cast<unsigned>(bytes));
    for (std::size_t at = 0; at < memory_.bytes().size(); at += kPatch) {
      std::memset(memory_.bytes().data() + at, static_cast<int>(random()), kPatch);
    }
    bytes_ = memory_.bytes().first(bytes);
  }
  [[nodiscard]] std::span<std::byte> bytes() const { return bytes_; }
  [[nodiscard]] std::span<std::byte> memory() const { return memory_.bytes(); }
  [[nodiscard]] std::size_t slabs() const { return ceil_div(bytes_.size(), kSlabBytes); }
  [[nodiscard]] Image image() const { return {bytes_, bytes_.size(), kSlabBytes}; }

 private:
  static constexpr std::size_t kPatch = 256;  // of equal bytes: fast without optimisation

  MappedMemory memory_;
  std::span<std::byte> bytes_;
};

inline Result<std::vector<std::byte>> make_header(std::size_t) {
  return std::vector<std::byte>(kHeader, std::byte{'h'});
}

inline std::string text_of(const Data& data, std::uint64_t offset, std::uint64_t bytes) {
  return {reinterpret_cast<const char*>(data.bytes().data()) + offset, bytes};
}

inline std::string expected_file(const Data& data) {
  return std::string(kHeader, 'h') + text_of(data, 0, data.bytes().size());
}

inline PartSpec spec_of(const Data& data) {
  return {.files = {{kName, kHeader}}, .image = data.image()};
}

inline void push_all(PartWriter& writer, std::size_t slab_count) {
  for (std::size_t i = slab_count; i > 0; --i) writer.push(i - 1);
}

}  // namespace deepfreeze

// Sizes that the format fixes, and the place of each tensor in a file's data section. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "deepfreeze/tensor.h"

namespace deepfreeze {

inline constexpr std::uint64_t kPageBytes = 4096;             // header and data start at multiples
inline constexpr std::uint64_t kBlockBytes = 64 * 1024;       // unit of checksum and partial read
inline constexpr std::uint64_t kSlabBytes = 4 * 1024 * 1024;  // unit of write
inline constexpr std::uint64_t kHeaderBytesMax = 25'000'000;  // the strictest reader's limit

// Half-open range of bytes, counted from the start of the data section.
struct Extent {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  [[nodiscard]] std::uint64_t size() const { return end - begin; }
  bool operator==(const Extent&) const = default;
};

struct Layout {
  std::vector<std::size_t> order;  // indices into the input, in file order
  std::vector<Extent> extents;     // by input index; contiguous in `order`, no holes
  std::uint64_t data_bytes = 0;
};

// Stable sort by min(2^ctz(bytes), 4096) descending, so that every offset is a multiple of its
// own class; zero-size tensors come last. kInvalidArgument on overflow.
[[nodiscard]] Result<Layout> lay_out(std::span<const TensorSpec> specs);

[[nodiscard]] std::uint64_t block_count(std::uint64_t data_bytes);

}  // namespace deepfreeze

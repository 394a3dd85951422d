#include "format/layout.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <utility>

#include "base/checked_math.h"
#include "base/try.h"

namespace deepfreeze {
namespace {

// Offsets in a file are signed 64-bit numbers, and the header goes before the data.
constexpr std::uint64_t kDataBytesMax = std::numeric_limits<std::int64_t>::max() - kHeaderBytesMax;

// The greatest power of two that divides the size, up to a page; 0 for an empty tensor.
std::uint64_t alignment_class(std::uint64_t bytes) {
  if (bytes == 0) return 0;
  return std::min(std::uint64_t{1} << std::countr_zero(bytes), kPageBytes);
}

}  // namespace

Result<Layout> lay_out(std::span<const TensorSpec> specs) {
  std::vector<std::uint64_t> sizes(specs.size());
  for (std::size_t i = 0; i < specs.size(); ++i) {
    DF_TRY(sizes[i], spec_bytes(specs[i]));
  }
  Layout layout{.order = std::vector<std::size_t>(specs.size()),
                .extents = std::vector<Extent>(specs.size())};
  std::iota(layout.order.begin(), layout.order.end(), std::size_t{0});
  // The index breaks ties, so tensors of one class keep their order.
  std::ranges::sort(layout.order, [&](std::size_t a, std::size_t b) {
    return std::pair(alignment_class(sizes[b]), a) < std::pair(alignment_class(sizes[a]), b);
  });
  for (const std::size_t i : layout.order) {
    const auto end = checked_add(layout.data_bytes, sizes[i]);
    if (!end || *end > kDataBytesMax) {
      return fail(ErrorCode::kInvalidArgument, "the tensors together are too large");
    }
    layout.extents[i] = {.begin = layout.data_bytes, .end = *end};
    layout.data_bytes = *end;
  }
  return layout;
}

std::uint64_t block_count(std::uint64_t data_bytes) { return ceil_div(data_bytes, kBlockBytes); }

}  // namespace deepfreeze

// The least and the greatest value of a tensor, and how many are neither: a look at its numbers
// that costs one pass over memory. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "deepfreeze/tensor.h"

namespace deepfreeze {

// The range of the stored elements; a complex number counts as two.
struct ValueRange {
  double min = 0;  // of the finite elements; 0, as is max, if there are none
  double max = 0;
  std::uint64_t finite = 0;
  std::uint64_t non_finite = 0;  // NaN or infinite
  bool operator==(const ValueRange&) const = default;
};

// Only types that know NaN have a range.
[[nodiscard]] bool is_floating_point(DType dtype);

// `bytes` holds whole elements of `dtype`; for a type that is not floating-point, no element
// counts.
[[nodiscard]] ValueRange value_range(DType dtype, std::span<const std::byte> bytes);

// The range of two sets of a tensor's elements together.
[[nodiscard]] ValueRange joined(const ValueRange& a, const ValueRange& b);

}  // namespace deepfreeze

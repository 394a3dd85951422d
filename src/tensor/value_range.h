// The least and the greatest value of a tensor, and how many are neither: a look at its numbers
// that costs one pass over memory. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "deepfreeze/tensor.h"
#include "deepfreeze/value_range.h"

namespace deepfreeze {

// Only types that know NaN have a range.
[[nodiscard]] bool is_floating_point(DType dtype);

// `bytes` holds whole elements of `dtype`; for a type that is not floating-point, no element
// counts.
[[nodiscard]] ValueRange value_range(DType dtype, std::span<const std::byte> bytes);

// The range of two sets of a tensor's elements together.
[[nodiscard]] ValueRange joined(const ValueRange& a, const ValueRange& b);

}  // namespace deepfreeze

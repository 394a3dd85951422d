// Numbers about one tensor, and about the difference of two. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "deepfreeze/tensor.h"

namespace deepfreeze {

inline constexpr std::size_t kHistogramBins = 20;

// Covers the finite elements, except for the counts; NaN if there are none. Complex elements count
// by magnitude.
struct TensorStats {
  std::uint64_t count = 0;
  std::uint64_t zero_count = 0;
  std::uint64_t nan_count = 0;
  std::uint64_t inf_count = 0;
  double min = std::numeric_limits<double>::quiet_NaN();
  double max = std::numeric_limits<double>::quiet_NaN();
  double mean = std::numeric_limits<double>::quiet_NaN();
  double std_dev = std::numeric_limits<double>::quiet_NaN();  // of the population
  double norm = std::numeric_limits<double>::quiet_NaN();     // L2
  std::vector<std::uint64_t> histogram;  // kHistogramBins of [min, max]; may be empty
};

// `bytes` holds whole elements of `spec.dtype`.
[[nodiscard]] TensorStats tensor_stats(const TensorSpec& spec, std::span<const std::byte> bytes);

struct TensorDifference {
  std::uint64_t count = 0;
  std::uint64_t differing = 0;     // elements whose bits differ
  std::uint64_t incomparable = 0;  // of those, the ones whose a - b is not a number
  double max_abs = 0;              // largest |a - b| of the comparable ones
  double l2 = 0;                   // norm of a - b, likewise
  double l2_relative = 0;          // l2 over the norm of a's finite elements
  [[nodiscard]] bool equal() const { return differing == 0; }
};

// Both hold the same number of elements of `spec`. Equal bits are equal, NaN or not.
[[nodiscard]] TensorDifference tensor_difference(const TensorSpec& spec,
                                                 std::span<const std::byte> a,
                                                 std::span<const std::byte> b);

// Pairs of stored elements that stand for one number.
[[nodiscard]] bool is_complex(const TensorSpec& spec);

}  // namespace deepfreeze

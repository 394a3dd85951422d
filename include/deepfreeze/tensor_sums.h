// Sums over the elements of one tensor, and over their change since another time, from pieces of
// it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "deepfreeze/tensor.h"

namespace deepfreeze {

inline constexpr std::size_t kExponentBins = 64;
inline constexpr int kExponentFirst = -40;  // of the first bin, which also has all that are smaller

// The elements are the stored ones: a complex number counts as two.
struct TensorSums {
  // Finite elements.
  double min = std::numeric_limits<double>::infinity();
  double max = -std::numeric_limits<double>::infinity();
  double sum = 0;
  double squares = 0;
  std::uint64_t finite = 0;
  std::uint64_t zeros = 0;
  std::uint64_t non_finite = 0;
  // Elements that are finite at both times.
  double own_squares = 0;
  double earlier_squares = 0;
  double delta_squares = 0;
  double dot = 0;
  std::uint64_t changed = 0;  // elements whose bits differ, finite or not
  // Some finite elements of floating-point types other than zero, by their power of two.
  std::array<std::uint64_t, kExponentBins> exponents{};
};

// Adds a piece of whole elements; `earlier` is the same piece at the other time, or empty. Every
// `stride`-th element of a piece is counted by its exponent.
void add_to_sums(TensorSums& sums, DType dtype, std::span<const std::byte> bytes,
                 std::span<const std::byte> earlier, std::size_t stride);

}  // namespace deepfreeze

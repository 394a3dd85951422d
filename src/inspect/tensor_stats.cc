#include "inspect/tensor_stats.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>

#include "tensor/element.h"

namespace deepfreeze {
namespace {

// The magnitude of a complex number. Without std::hypot: glibc's is a new one since 2.35, its cabs
// is the old one, with the same result, and wheels run on 2.34.
double magnitude(double real, double imaginary) { return std::abs(std::complex(real, imaginary)); }

// Calls fn(value) for every element, a complex one by its magnitude.
template <class Fn>
void for_each_value(const TensorSpec& spec, std::span<const std::byte> bytes, Fn&& fn) {
  with_element_type(spec.dtype, [&]<class T>(T) {
    const std::uint64_t stored = bytes.size() / sizeof(T);
    if (!is_complex(spec)) {
      for (std::uint64_t i = 0; i < stored; ++i) fn(to_number(element_at<T>(bytes, i)));
      return;
    }
    for (std::uint64_t i = 0; i + 1 < stored; i += 2) {
      fn(magnitude(to_number(element_at<T>(bytes, i)), to_number(element_at<T>(bytes, i + 1))));
    }
  });
}

// Calls fn(distance, magnitude of a, whether the bits differ) for every pair of elements.
template <class Fn>
void for_each_pair(const TensorSpec& spec, std::span<const std::byte> a,
                   std::span<const std::byte> b, Fn&& fn) {
  with_element_type(spec.dtype, [&]<class T>(T) {
    const std::uint64_t parts = is_complex(spec) ? 2 : 1;
    const std::uint64_t stored = a.size() / sizeof(T) / parts * parts;
    for (std::uint64_t i = 0; i < stored; i += parts) {
      const T first = element_at<T>(a, i);
      const std::size_t at = i * sizeof(T);
      const bool differs = std::memcmp(&a[at], &b[at], parts * sizeof(T)) != 0;
      double gap = distance(first, element_at<T>(b, i));
      double size = std::abs(to_number(first));
      if (parts == 2) {
        gap = magnitude(gap, distance(element_at<T>(a, i + 1), element_at<T>(b, i + 1)));
        size = magnitude(size, to_number(element_at<T>(a, i + 1)));
      }
      fn(gap, size, differs);
    }
  });
}

// A power of two near the largest magnitude: sums of squares then neither overflow nor vanish.
double scale_for(double largest) {
  if (!(largest > 0) || !std::isfinite(largest)) return 1;
  return std::ldexp(1.0, std::ilogb(largest));
}

std::size_t bin_of(double value, const TensorStats& stats) {
  // Halves, so that the width of a range from -max to max does not overflow.
  const double width = stats.max / 2 - stats.min / 2;
  if (!(width > 0)) return 0;
  const double place = (value / 2 - stats.min / 2) / width;
  const auto bin = static_cast<std::size_t>(place * static_cast<double>(kHistogramBins));
  return std::min(bin, kHistogramBins - 1);
}

void count_value(TensorStats& stats, double value) {
  ++stats.count;
  if (value == 0) ++stats.zero_count;
  if (std::isnan(value)) ++stats.nan_count;
  if (std::isinf(value)) ++stats.inf_count;
  if (!std::isfinite(value)) return;
  stats.min = std::fmin(stats.min, value);  // fmin and fmax skip the first NaN
  stats.max = std::fmax(stats.max, value);
}

}  // namespace

bool is_complex(const TensorSpec& spec) {
  const bool pairs = !spec.shape.empty() && spec.shape.back() == 2;
  return pairs && ((spec.logical_dtype == "complex64" && spec.dtype == DType::kF32) ||
                   (spec.logical_dtype == "complex128" && spec.dtype == DType::kF64));
}

TensorStats tensor_stats(const TensorSpec& spec, std::span<const std::byte> bytes) {
  TensorStats stats;
  for_each_value(spec, bytes, [&](double value) { count_value(stats, value); });
  const std::uint64_t finite = stats.count - stats.nan_count - stats.inf_count;
  if (finite == 0) return stats;

  const double n = static_cast<double>(finite);
  const double scale = scale_for(std::max(std::abs(stats.min), std::abs(stats.max)));
  double sum = 0;
  double squares = 0;
  stats.histogram.assign(kHistogramBins, 0);
  for_each_value(spec, bytes, [&](double value) {
    if (!std::isfinite(value)) return;
    const double scaled = value / scale;
    sum += scaled;
    squares += scaled * scaled;
    ++stats.histogram[bin_of(value, stats)];
  });
  const double mean = sum / n;
  double deviations = 0;
  for_each_value(spec, bytes, [&](double value) {
    if (!std::isfinite(value)) return;
    const double deviation = value / scale - mean;
    deviations += deviation * deviation;
  });
  stats.mean = mean * scale;
  stats.std_dev = std::sqrt(deviations / n) * scale;
  stats.norm = std::sqrt(squares) * scale;
  return stats;
}

TensorDifference tensor_difference(const TensorSpec& spec, std::span<const std::byte> a,
                                   std::span<const std::byte> b) {
  TensorDifference result;
  double largest = 0;
  for_each_pair(spec, a, b, [&](double gap, double size, bool differs) {
    ++result.count;
    if (std::isfinite(size)) largest = std::max(largest, size);
    if (!differs) return;
    ++result.differing;
    if (std::isnan(gap)) {
      ++result.incomparable;
    } else {
      result.max_abs = std::max(result.max_abs, gap);
    }
  });
  if (result.equal()) return result;

  const double gap_scale = scale_for(result.max_abs);
  const double size_scale = scale_for(largest);
  double gap_squares = 0;
  double size_squares = 0;
  for_each_pair(spec, a, b, [&](double gap, double size, bool differs) {
    if (differs && !std::isnan(gap)) gap_squares += gap / gap_scale * (gap / gap_scale);
    if (std::isfinite(size)) size_squares += size / size_scale * (size / size_scale);
  });
  result.l2 = std::sqrt(gap_squares) * gap_scale;
  const double norm = std::sqrt(size_squares) * size_scale;
  if (result.l2 > 0) result.l2_relative = result.l2 / norm;  // infinite if a is all zero
  return result;
}

}  // namespace deepfreeze

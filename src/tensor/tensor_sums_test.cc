#include "deepfreeze/tensor_sums.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "tensor/element.h"

namespace deepfreeze {
namespace {

constexpr std::array kSumTypes{DType::kBool, DType::kU8,     DType::kI8,   DType::kI16,
                               DType::kU16,  DType::kI32,    DType::kU64,  DType::kF8E4M3,
                               DType::kF16,  DType::kF8E5M2, DType::kBF16, DType::kF32,
                               DType::kF64};
constexpr std::array<std::size_t, 8> kSumCounts{0, 1, 7, 8, 511, 512, 513, 3000};

// One element after the other.
TensorSums summed_slowly(DType dtype, std::span<const std::byte> a, std::span<const std::byte> b) {
  TensorSums sums;
  with_element_type(dtype, [&]<class T>(T) {
    for (std::size_t i = 0; i < a.size() / sizeof(T); ++i) {
      const double now = to_number(element_at<T>(a, i));
      const double before = to_number(element_at<T>(b, i));
      const auto differ = std::memcmp(&a[i * sizeof(T)], &b[i * sizeof(T)], sizeof(T));
      sums.changed += differ != 0 ? 1 : 0;
      if (std::isfinite(now) && std::isfinite(before)) {
        sums.delta_squares += (now - before) * (now - before);
        sums.dot += now * before;
        sums.own_squares += now * now;
        sums.earlier_squares += before * before;
      }
      if (!std::isfinite(now)) {
        ++sums.non_finite;
        continue;
      }
      ++sums.finite;
      sums.zeros += now == 0 ? 1 : 0;
      sums.min = std::min(sums.min, now);
      sums.max = std::max(sums.max, now);
      sums.sum += now;
      sums.squares += now * now;
    }
  });
  return sums;
}

void expect_near(double found, double expected, double scale) {
  if (found == expected) return;  // infinities too
  EXPECT_NEAR(found, expected, 1e-12 * std::abs(scale) + 1e-300);
}

// `odd`: NaN and infinities stay.
std::vector<std::byte> random_elements(DType dtype, std::size_t count, bool odd,
                                       std::mt19937& random) {
  std::vector<std::byte> bytes;
  with_element_type(dtype, [&]<class T>(T) {
    while (bytes.size() < count * sizeof(T)) {
      std::array<std::byte, sizeof(T)> element{};
      for (std::byte& byte : element) byte = static_cast<std::byte>(random() & 0xFFU);
      const double value = to_number(element_at<T>(element, 0));
      if (!odd && (!std::isfinite(value) || std::abs(value) > 1e100)) continue;
      bytes.insert(bytes.end(), element.begin(), element.end());
    }
  });
  return bytes;
}

TEST(TensorSums, AreThoseOfAllElementsOfEveryType) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (const DType dtype : kSumTypes) {
    for (const std::size_t count : kSumCounts) {
      for (const bool odd : {false, true}) {
        SCOPED_TRACE(testing::Message() << dtype_name(dtype) << " " << count << " " << odd);
        if (odd && dtype == DType::kF64) continue;  // sums of 1e300 have no use
        const auto a = random_elements(dtype, count, odd, random);
        const auto b = random_elements(dtype, count, odd, random);
        TensorSums found;
        add_to_sums(found, dtype, a, b, 1);
        const TensorSums expected = summed_slowly(dtype, a, b);
        EXPECT_EQ(found.finite, expected.finite);
        EXPECT_EQ(found.zeros, expected.zeros);
        EXPECT_EQ(found.non_finite, expected.non_finite);
        EXPECT_EQ(found.changed, expected.changed);
        EXPECT_EQ(found.min, expected.min);
        EXPECT_EQ(found.max, expected.max);
        const double scale = std::sqrt(expected.squares * static_cast<double>(count));
        expect_near(found.sum, expected.sum, scale);
        expect_near(found.squares, expected.squares, expected.squares);
        expect_near(found.own_squares, expected.own_squares, expected.own_squares);
        expect_near(found.earlier_squares, expected.earlier_squares, expected.earlier_squares);
        expect_near(found.delta_squares, expected.delta_squares, expected.delta_squares);
        expect_near(found.dot, expected.dot,
                    std::sqrt(expected.own_squares * expected.earlier_squares));
      }
    }
  }
}

TEST(TensorSums, OfPiecesAreThoseOfTheWhole) {
  std::mt19937 random(7);
  const auto a = random_elements(DType::kF32, 2000, false, random);
  const auto b = random_elements(DType::kF32, 2000, false, random);
  TensorSums whole;
  TensorSums pieces;
  add_to_sums(whole, DType::kF32, a, b, 1);
  for (std::size_t at = 0; at < a.size(); at += 1200) {
    const std::size_t size = std::min<std::size_t>(1200, a.size() - at);
    add_to_sums(pieces, DType::kF32, std::span(a).subspan(at, size), std::span(b).subspan(at, size),
                1);
  }
  EXPECT_EQ(pieces.finite, whole.finite);
  EXPECT_EQ(pieces.changed, whole.changed);
  EXPECT_EQ(pieces.exponents, whole.exponents);
  expect_near(pieces.delta_squares, whole.delta_squares, whole.delta_squares);
}

TEST(TensorSums, CountExponentsOfEveryStridethElement) {
  std::vector<float> values(1500, 1.5F);
  values[0] = 0;
  values[3] = 4;
  values[600] = -1e30F;
  values[603] = std::ldexp(1.0F, -60);
  values[606] = std::numeric_limits<float>::infinity();
  TensorSums sums;
  add_to_sums(sums, DType::kF32, std::as_bytes(std::span(values)), {}, 3);
  std::array<std::uint64_t, kExponentBins> expected{};
  expected[-kExponentFirst] = 500 - 5;
  expected[2 - kExponentFirst] = 1;
  expected[0] = 1;
  expected[kExponentBins - 1] = 1;
  EXPECT_EQ(sums.exponents, expected);
  EXPECT_EQ(sums.changed, 0U);
}

}  // namespace
}  // namespace deepfreeze

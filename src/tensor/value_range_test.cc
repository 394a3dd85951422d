#include "tensor/value_range.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tensor/element.h"

namespace deepfreeze {
namespace {

constexpr std::array kFloats{DType::kF8E4M3, DType::kF8E5M2, DType::kF16,
                             DType::kBF16,   DType::kF32,    DType::kF64};

constexpr std::array<std::size_t, 9> kCounts{0, 1, 2, 100, 127, 128, 4096, 4097, 20'000};

template <class T>
std::vector<std::byte> bytes_of(std::initializer_list<T> values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

// One element after the other, by their values.
ValueRange slowly(DType dtype, std::span<const std::byte> bytes) {
  ValueRange range;
  with_element_type(dtype, [&]<class T>(T) {
    for (std::size_t i = 0; i < bytes.size() / sizeof(T); ++i) {
      const double value = to_number(element_at<T>(bytes, i));
      if (!std::isfinite(value)) {
        ++range.non_finite;
        continue;
      }
      range.min = range.finite == 0 ? value : std::min(range.min, value);
      range.max = range.finite == 0 ? value : std::max(range.max, value);
      ++range.finite;
    }
  });
  return range;
}

TEST(ValueRangeTest, IsThatOfAnyBits) {
  constexpr std::uint32_t kSeed = 20261122;
  std::mt19937_64 random(kSeed);
  for (const DType dtype : kFloats) {
    for (const std::size_t count : kCounts) {
      std::vector<std::byte> bytes(count * dtype_bytes(dtype));
      for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
      EXPECT_EQ(value_range(dtype, bytes), slowly(dtype, bytes))
          << dtype_name(dtype) << ", " << count << " elements, seed " << kSeed;
    }
  }
}

TEST(ValueRangeTest, InfinitiesAndNaNsAreCountedAndNoMore) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(value_range(DType::kF32, bytes_of({1.5F, kInf, -kInf, -2.0F, kNaN, -kNaN})),
            (ValueRange{.min = -2, .max = 1.5, .finite = 2, .non_finite = 4}));
  EXPECT_EQ(value_range(DType::kF32, bytes_of({kNaN})), ValueRange{.non_finite = 1});
}

TEST(ValueRangeTest, AllOfOneSignHasBothEnds) {
  EXPECT_EQ(value_range(DType::kF64, bytes_of({-3.0, -1.0})),
            (ValueRange{.min = -3, .max = -1, .finite = 2}));
  EXPECT_EQ(value_range(DType::kF64, bytes_of({3.0, 1.0})),
            (ValueRange{.min = 1, .max = 3, .finite = 2}));
}

TEST(ValueRangeTest, WholeNumbersHaveNone) {
  EXPECT_EQ(value_range(DType::kI32, bytes_of({1, 2})), ValueRange{});
  for (const DType dtype : kFloats) EXPECT_TRUE(is_floating_point(dtype));
  for (const DType dtype : {DType::kBool, DType::kU8, DType::kI16, DType::kU64}) {
    EXPECT_FALSE(is_floating_point(dtype));
  }
}

TEST(ValueRangeTest, PartsJoinToTheWhole) {
  const ValueRange low{.min = -1, .max = 0, .finite = 2, .non_finite = 1};
  const ValueRange high{.min = 3, .max = 5, .finite = 4, .non_finite = 2};
  const ValueRange none{.non_finite = 7};
  EXPECT_EQ(joined(low, high), (ValueRange{.min = -1, .max = 5, .finite = 6, .non_finite = 3}));
  EXPECT_EQ(joined(high, low), joined(low, high));
  EXPECT_EQ(joined(high, none), (ValueRange{.min = 3, .max = 5, .finite = 4, .non_finite = 9}));
  EXPECT_EQ(joined(none, high), joined(high, none));
  EXPECT_EQ(joined(none, none), ValueRange{.non_finite = 14});
}

}  // namespace
}  // namespace deepfreeze

#include "inspect/tensor_stats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "tensor/element.h"

namespace deepfreeze {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

template <class T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

TensorSpec spec_of(DType dtype, Shape shape, std::string logical = {}) {
  return {.key = "t",
          .dtype = dtype,
          .shape = std::move(shape),
          .logical_dtype = std::move(logical),
          .box = {},
          .global_shape = {}};
}

TEST(Element, SmallFloatsHaveTheirSpecifiedValues) {
  EXPECT_EQ(to_number(Float16{0x3C00}), 1.0);
  EXPECT_EQ(to_number(Float16{0xC000}), -2.0);
  EXPECT_EQ(to_number(Float16{0x7BFF}), 65504.0);
  EXPECT_EQ(to_number(Float16{0x0001}), std::ldexp(1.0, -24));
  EXPECT_EQ(to_number(Float16{0xFC00}), -kInf);
  EXPECT_TRUE(std::isnan(to_number(Float16{0x7E00})));
  EXPECT_EQ(to_number(BFloat16{0x3F80}), 1.0);
  EXPECT_EQ(to_number(BFloat16{0x7F80}), kInf);
  EXPECT_EQ(to_number(Float8E4M3{0x7E}), 448.0);
  EXPECT_EQ(to_number(Float8E4M3{0x01}), std::ldexp(1.0, -9));
  EXPECT_EQ(to_number(Float8E4M3{0xB8}), -1.0);
  EXPECT_TRUE(std::isnan(to_number(Float8E4M3{0xFF})));
  EXPECT_EQ(to_number(Float8E5M2{0x7B}), 57344.0);
  EXPECT_EQ(to_number(Float8E5M2{0x7C}), kInf);
  EXPECT_EQ(to_number(Float8E5M2{0x01}), std::ldexp(1.0, -16));
  EXPECT_TRUE(std::signbit(to_number(Float16{0x8000})));
}

TEST(TensorStats, CountsFiniteElementsApartFromTheOthers) {
  const auto stats =
      tensor_stats(spec_of(DType::kF64, {6}), bytes_of<double>({1, -3, 0, kNan, kInf, -kInf}));
  EXPECT_EQ(stats.count, 6U);
  EXPECT_EQ(stats.zero_count, 1U);
  EXPECT_EQ(stats.nan_count, 1U);
  EXPECT_EQ(stats.inf_count, 2U);
  EXPECT_EQ(stats.min, -3);
  EXPECT_EQ(stats.max, 1);
  EXPECT_DOUBLE_EQ(stats.mean, -2.0 / 3);
  EXPECT_DOUBLE_EQ(stats.norm, std::sqrt(10.0));
  EXPECT_DOUBLE_EQ(stats.std_dev, std::sqrt(10.0 / 3 - 4.0 / 9));
  ASSERT_EQ(stats.histogram.size(), kHistogramBins);
  EXPECT_EQ(stats.histogram.front(), 1U);
  EXPECT_EQ(stats.histogram.back(), 1U);
  EXPECT_EQ(stats.histogram[15], 1U);
}

TEST(TensorStats, LargestNumbersDoNotOverflow) {
  const double big = std::numeric_limits<double>::max();
  const auto stats = tensor_stats(spec_of(DType::kF64, {2}), bytes_of<double>({big, -big}));
  EXPECT_EQ(stats.mean, 0);
  EXPECT_EQ(stats.std_dev, big);
  EXPECT_EQ(stats.histogram.front(), 1U);
  EXPECT_EQ(stats.histogram.back(), 1U);
  const double tiny = std::numeric_limits<double>::denorm_min();
  EXPECT_EQ(tensor_stats(spec_of(DType::kF64, {1}), bytes_of<double>({tiny})).norm, tiny);
}

TEST(TensorStats, ReadsEveryDtypeAndEmptyTensors) {
  const auto max_of = [](DType dtype, const auto& values) {
    return tensor_stats(spec_of(dtype, {values.size()}), bytes_of(values)).max;
  };
  EXPECT_EQ(max_of(DType::kBool, std::vector<std::uint8_t>{0, 1}), 1);
  EXPECT_EQ(max_of(DType::kU8, std::vector<std::uint8_t>{255}), 255);
  EXPECT_EQ(max_of(DType::kI8, std::vector<std::int8_t>{-5}), -5);
  EXPECT_EQ(max_of(DType::kI16, std::vector<std::int16_t>{-300, 300}), 300);
  EXPECT_EQ(max_of(DType::kU16, std::vector<std::uint16_t>{65535}), 65535);
  EXPECT_EQ(max_of(DType::kI32, std::vector<std::int32_t>{-7}), -7);
  EXPECT_EQ(max_of(DType::kU32, std::vector<std::uint32_t>{4000000000U}), 4e9);
  EXPECT_EQ(max_of(DType::kI64, std::vector<std::int64_t>{-9}), -9);
  EXPECT_EQ(max_of(DType::kU64, std::vector<std::uint64_t>{1ULL << 63U}), std::ldexp(1, 63));
  EXPECT_EQ(max_of(DType::kF32, std::vector<float>{1.5F}), 1.5);
  EXPECT_EQ(max_of(DType::kBF16, std::vector<std::uint16_t>{0x4049}), 3.140625);
  EXPECT_EQ(max_of(DType::kF16, std::vector<std::uint16_t>{0x4248}), 3.140625);
  EXPECT_EQ(max_of(DType::kF8E4M3, std::vector<std::uint8_t>{0x40}), 2);
  EXPECT_EQ(max_of(DType::kF8E5M2, std::vector<std::uint8_t>{0x40}), 2);
  const auto none = tensor_stats(spec_of(DType::kF32, {0}), {});
  EXPECT_EQ(none.count, 0U);
  EXPECT_TRUE(std::isnan(none.mean));
  EXPECT_TRUE(none.histogram.empty());
}

TEST(TensorStats, ComplexElementsCountByMagnitude) {
  const auto stats =
      tensor_stats(spec_of(DType::kF32, {2, 2}, "complex64"), bytes_of<float>({3, 4, 0, 0}));
  EXPECT_EQ(stats.count, 2U);
  EXPECT_EQ(stats.max, 5);
  EXPECT_EQ(stats.zero_count, 1U);
  const auto plain = tensor_stats(spec_of(DType::kU8, {4}, "float8_e5m2fnuz"),
                                  bytes_of<std::uint8_t>({1, 2, 3, 4}));
  EXPECT_EQ(plain.count, 4U);
}

TEST(TensorDifference, MeasuresOnlyWhatDiffers) {
  const auto a = bytes_of<float>({3, 4, 0, 1});
  const auto b = bytes_of<float>({3, 4, 0.5F, 1});
  const auto difference = tensor_difference(spec_of(DType::kF32, {4}), a, b);
  EXPECT_EQ(difference.count, 4U);
  EXPECT_EQ(difference.differing, 1U);
  EXPECT_EQ(difference.max_abs, 0.5);
  EXPECT_DOUBLE_EQ(difference.l2, 0.5);
  EXPECT_DOUBLE_EQ(difference.l2_relative, 0.5 / std::sqrt(26.0));
  EXPECT_TRUE(tensor_difference(spec_of(DType::kF32, {4}), a, a).equal());
}

TEST(TensorDifference, BitsDecideForZerosAndNan) {
  const auto spec = spec_of(DType::kF64, {3});
  const auto a = bytes_of<double>({0.0, kNan, kNan});
  const auto b = bytes_of<double>({-0.0, kNan, 1});
  const auto difference = tensor_difference(spec, a, b);
  EXPECT_EQ(difference.differing, 2U);
  EXPECT_EQ(difference.incomparable, 1U);
  EXPECT_EQ(difference.max_abs, 0);
  EXPECT_EQ(difference.l2_relative, 0);
}

TEST(TensorDifference, WholeNumbersAreSubtractedExactly) {
  const std::uint64_t big = (1ULL << 63U) + 1;
  const auto difference =
      tensor_difference(spec_of(DType::kU64, {2}), bytes_of<std::uint64_t>({big, 0}),
                        bytes_of<std::uint64_t>({big - 1, 0}));
  EXPECT_EQ(difference.max_abs, 1);
  const auto extremes = tensor_difference(
      spec_of(DType::kI64, {1}), bytes_of<std::int64_t>({std::numeric_limits<std::int64_t>::min()}),
      bytes_of<std::int64_t>({std::numeric_limits<std::int64_t>::max()}));
  EXPECT_EQ(extremes.max_abs, std::ldexp(1, 64));
  const auto bytes = tensor_difference(spec_of(DType::kI8, {1}), bytes_of<std::int8_t>({-128}),
                                       bytes_of<std::int8_t>({127}));
  EXPECT_EQ(bytes.max_abs, 255);
}

TEST(TensorDifference, FromZeroIsInfinitelyFar) {
  const auto difference =
      tensor_difference(spec_of(DType::kF32, {1}), bytes_of<float>({0}), bytes_of<float>({1}));
  EXPECT_EQ(difference.l2_relative, kInf);
  const auto complex = tensor_difference(spec_of(DType::kF32, {1, 2}, "complex64"),
                                         bytes_of<float>({0, 0}), bytes_of<float>({3, 4}));
  EXPECT_EQ(complex.count, 1U);
  EXPECT_EQ(complex.max_abs, 5);
}

}  // namespace
}  // namespace deepfreeze

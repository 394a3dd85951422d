#include <gtest/gtest.h>

#include <array>

#include "tensor/tensor_table.h"

namespace deepfreeze {
namespace {

constexpr std::array<std::byte, 64> kBytes{};

Tensor tensor(std::string key, Shape shape, std::size_t bytes) {
  return {.spec = {.key = std::move(key), .dtype = DType::kF32, .shape = std::move(shape)},
          .data = std::span(kBytes).first(bytes)};
}

std::string refusal(const TensorTable& table) {
  const Status checked = check_table(table);
  if (checked) return "accepted";
  EXPECT_EQ(checked.error().code(), ErrorCode::kInvalidArgument);
  return checked.error().message();
}

TEST(DType, NamesRoundTrip) {
  for (int i = 0; i < 15; ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(dtype_from_name(dtype_name(dtype)), dtype);
  }
  EXPECT_EQ(dtype_from_name("C64"), std::nullopt);
  EXPECT_EQ(dtype_bytes(DType::kBF16), 2U);
}

TEST(SpecBytes, MultipliesAndSaysWhenItOverflows) {
  EXPECT_EQ(spec_bytes(tensor("a", {3, 5}, 0).spec), 60U);
  EXPECT_EQ(spec_bytes(tensor("a", {}, 0).spec), 4U);
  EXPECT_EQ(spec_bytes(tensor("a", {1ULL << 40, 1ULL << 40, 0}, 0).spec), 0U);
  EXPECT_FALSE(spec_bytes(tensor("a", {1ULL << 62}, 0).spec).has_value());
}

TEST(CheckTable, AcceptsWhatIsSound) {
  EXPECT_EQ(refusal({tensor("a", {2, 2}, 16), tensor("b", {0}, 0), tensor("ü\n\"", {}, 4)}),
            "accepted");
}

TEST(CheckTable, NamesTheKeyThatIsNot) {
  EXPECT_EQ(refusal({tensor("a", {1}, 4), tensor("a", {1}, 4)}),
            "tensor \"a\": its key is used twice");
  EXPECT_EQ(refusal({tensor("a", {2}, 4)}),
            "tensor \"a\": 4 bytes were given, and its shape has 8");
  EXPECT_EQ(refusal({tensor("", {1}, 4)}), "tensor \"\": its key is empty");
  EXPECT_EQ(refusal({tensor("__metadata__", {1}, 4)}),
            "tensor \"__metadata__\": the file format reserves this key");
  EXPECT_NE(refusal({tensor("a", Shape(kRankMax + 1, 1), 4)}), "accepted");
  EXPECT_NE(refusal({tensor(std::string(kKeyBytesMax + 1, 'k'), {1}, 4)}), "accepted");
}

TEST(CheckSpec, RefusesWhatHasNoSize) {
  EXPECT_FALSE(check_spec(tensor("a", {1ULL << 62}, 0).spec));
}

TEST(CheckTable, RefusesKeysThatAreNotUtf8) {
  for (const char* bad : {"\xff", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82"}) {
    EXPECT_NE(refusal({tensor(bad, {1}, 4)}), "accepted");
  }
  EXPECT_EQ(refusal({tensor("\xf0\x9f\xa7\x8a", {1}, 4)}), "accepted");
}

TEST(CheckTable, ABoxStaysWithinItsTensor) {
  Tensor part = tensor("a", {2, 2}, 16);
  part.spec.box = Box{.offset = {2, 0}, .extent = {2, 2}};
  part.spec.global_shape = {4, 2};
  EXPECT_EQ(refusal({part}), "accepted");
  part.spec.global_shape = {3, 2};
  EXPECT_EQ(refusal({part}), "tensor \"a\": its box leaves its global shape");
  part.spec.box->offset = {~0ULL, 0};
  EXPECT_EQ(refusal({part}), "tensor \"a\": its box leaves its global shape");
  part.spec.box = Box{.offset = {0, 0}, .extent = {1, 2}};
  EXPECT_EQ(refusal({part}), "tensor \"a\": its shape is not its box's extent");
}

TEST(CheckTable, RefusesALogicalDtypeThatIsNotUtf8) {
  Tensor complex = tensor("a", {2, 2}, 16);
  complex.spec.logical_dtype = "\xff";
  EXPECT_EQ(refusal({complex}), "tensor \"a\": its logical dtype is not UTF-8");
}

}  // namespace
}  // namespace deepfreeze

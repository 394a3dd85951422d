#include "format/layout.h"

#include <gtest/gtest.h>

#include <bit>
#include <random>

namespace deepfreeze {
namespace {

TensorSpec bytes_spec(std::uint64_t bytes) {
  return {.key = "t", .dtype = DType::kU8, .shape = {bytes}};
}

std::uint64_t class_of(std::uint64_t bytes) {
  return bytes == 0 ? 0 : std::min(std::uint64_t{1} << std::countr_zero(bytes), kPageBytes);
}

TEST(LayOut, PutsLargeAlignmentsFirstAndKeepsTheOrderWithin) {
  const std::vector<TensorSpec> specs{bytes_spec(3), bytes_spec(4096),  bytes_spec(0),
                                      bytes_spec(8), bytes_spec(12288), bytes_spec(5)};
  const auto layout = lay_out(specs);
  ASSERT_TRUE(layout.has_value());
  EXPECT_EQ(layout->order, (std::vector<std::size_t>{1, 4, 3, 0, 5, 2}));
  EXPECT_EQ(layout->extents[4], (Extent{.begin = 4096, .end = 16384}));
  EXPECT_EQ(layout->extents[2], (Extent{.begin = 16400, .end = 16400}));
  EXPECT_EQ(layout->data_bytes, 16400U);
}

TEST(LayOut, RefusesATensorBeyondSixtyFourBits) {
  TensorSpec wide{.key = "wide", .dtype = DType::kF64, .shape = {1ULL << 62}};
  const auto layout = lay_out(std::vector<TensorSpec>{bytes_spec(3), wide});
  ASSERT_FALSE(layout.has_value());
  EXPECT_TRUE(layout.error().message().contains("wide")) << layout.error().message();
}

TEST(LayOut, LeavesNoHolesAndAlignsEveryTensorToItsOwnClass) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed=" << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 200; ++round) {
    std::vector<TensorSpec> specs;
    for (std::uint64_t i = random() % 50; i > 0; --i) {
      specs.push_back(bytes_spec((random() % 100) << random() % 16));
    }
    const auto layout = lay_out(specs);
    ASSERT_TRUE(layout.has_value());
    std::uint64_t end = 0;
    for (const std::size_t i : layout->order) {
      const Extent extent = layout->extents[i];
      EXPECT_EQ(extent.begin, end);
      EXPECT_EQ(extent.size(), specs[i].shape[0]);
      EXPECT_EQ(extent.begin % std::max<std::uint64_t>(1, class_of(extent.size())), 0U);
      end = extent.end;
    }
    EXPECT_EQ(layout->data_bytes, end);
  }
}

TEST(LayOut, RefusesSizesThatNoFileHas) {
  for (const std::vector<TensorSpec>& specs :
       {std::vector{bytes_spec(1ULL << 63)}, std::vector{bytes_spec(~0ULL), bytes_spec(~0ULL)},
        std::vector{bytes_spec(1ULL << 62), bytes_spec(1ULL << 62)},
        std::vector{bytes_spec(1), bytes_spec(~0ULL)}}) {  // their sum is 0 in 64 bits
    const auto layout = lay_out(specs);
    ASSERT_FALSE(layout.has_value());
    EXPECT_EQ(layout.error().code(), ErrorCode::kInvalidArgument);
  }
}

TEST(BlockCount, RoundsUp) {
  EXPECT_EQ(block_count(0), 0U);
  EXPECT_EQ(block_count(1), 1U);
  EXPECT_EQ(block_count(kBlockBytes), 1U);
  EXPECT_EQ(block_count(kBlockBytes + 1), 2U);
  EXPECT_EQ(block_count(~0ULL), 1ULL << 48);
}

}  // namespace
}  // namespace deepfreeze

#include "tensor/region.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace deepfreeze {
namespace {

std::optional<std::string> fault_of(const std::vector<Box>& boxes, const Shape& whole) {
  std::vector<const Box*> parts;
  for (const Box& box : boxes) parts.push_back(&box);
  return fault_of_tiling(parts, whole);
}

TEST(Intersect, HasWhatBothHave) {
  const Box a{{0, 2}, {4, 4}};
  EXPECT_EQ(intersect(a, {{3, 0}, {4, 3}}), (Box{{3, 2}, {1, 1}}));
  EXPECT_EQ(intersect(a, a), a);
  EXPECT_EQ(intersect(a, {{4, 2}, {1, 1}}), std::nullopt) << "they touch";
  EXPECT_EQ(intersect(a, {{1, 3}, {0, 1}}), std::nullopt) << "one is empty";
  EXPECT_EQ(intersect({}, {}), Box{}) << "a scalar is one element";
}

TEST(StoredBox, IsTheBoxOrAllOfIt) {
  TensorSpec spec{.key = "w", .dtype = DType::kF32, .shape = {2, 3}};
  EXPECT_EQ(stored_box(spec), (Box{{0, 0}, {2, 3}}));
  EXPECT_EQ(whole_shape(spec), (Shape{2, 3}));
  spec.box = Box{{4, 0}, {2, 3}};
  spec.global_shape = {8, 3};
  EXPECT_EQ(stored_box(spec), *spec.box);
  EXPECT_EQ(whole_shape(spec), (Shape{8, 3}));
}

TEST(Tiling, OfAGridOfUnevenPartsHasNoFault) {
  std::vector<Box> boxes;
  for (const auto& [row, rows] : {std::pair{0, 3}, {3, 1}, {4, 4}}) {
    for (const auto& [column, columns] : {std::pair{0, 5}, {5, 2}}) {
      boxes.push_back({{std::uint64_t(row), std::uint64_t(column)},
                       {std::uint64_t(rows), std::uint64_t(columns)}});
    }
  }
  std::ranges::shuffle(boxes, std::mt19937_64(1));
  EXPECT_EQ(fault_of(boxes, {8, 7}), std::nullopt);
  boxes.push_back({{8, 0}, {0, 7}});  // a rank without rows
  EXPECT_EQ(fault_of(boxes, {8, 7}), std::nullopt);
}

TEST(Tiling, NeedNotBeLayered) {  // as bricks are laid around a hole
  const std::vector<Box> boxes = {
      {{0, 0}, {1, 2}}, {{0, 2}, {2, 1}}, {{2, 1}, {1, 2}}, {{1, 0}, {2, 1}}, {{1, 1}, {1, 1}}};
  EXPECT_EQ(fault_of(boxes, {3, 3}), std::nullopt);
}

TEST(Tiling, OfOneElementOrNone) {
  const std::vector<Box> scalar = {{}};
  EXPECT_EQ(fault_of(scalar, {}), std::nullopt);
  EXPECT_NE(fault_of({}, {}), std::nullopt);
  EXPECT_EQ(fault_of({}, {3, 0}), std::nullopt);
}

TEST(Tiling, SaysWhatOverlapsAndHowMuchIsMissing) {
  const Box first{{0, 0}, {2, 2}};
  EXPECT_EQ(fault_of({first}, {3, 2}), "its parts have 4 of 6 elements");
  EXPECT_EQ(fault_of({first, first}, {2, 2}),
            "a part at [0, 0] of [2, 2] overlaps one at [0, 0] of [2, 2]");
  const Box second{{1, 1}, {2, 1}};
  const auto fault = fault_of({first, second}, {3, 2});
  ASSERT_TRUE(fault.has_value());
  EXPECT_TRUE(fault->contains("overlaps")) << *fault;
}

// Cells of a random grid merged at random into larger boxes; then one of them moved or left out.
TEST(Tiling, IsRightAboutRandomOnes) {
  const std::uint64_t seed = std::random_device()();
  std::mt19937_64 random(seed);
  for (int round = 0; round < 300; ++round) {
    const Shape whole = {1 + random() % 6, 1 + random() % 6, 1 + random() % 3};
    std::vector<Box> boxes;
    for (std::uint64_t row = 0; row < whole[0];) {
      const std::uint64_t rows = 1 + random() % (whole[0] - row);
      for (std::uint64_t column = 0; column < whole[1];) {
        const std::uint64_t columns = 1 + random() % (whole[1] - column);
        boxes.push_back({{row, column, 0}, {rows, columns, whole[2]}});
        column += columns;
      }
      row += rows;
    }
    std::ranges::shuffle(boxes, random);
    EXPECT_EQ(fault_of(boxes, whole), std::nullopt) << "seed " << seed;
    boxes.pop_back();
    EXPECT_NE(fault_of(boxes, whole), std::nullopt) << "seed " << seed;
    if (boxes.empty()) continue;
    boxes.push_back(boxes.front());
    EXPECT_NE(fault_of(boxes, whole), std::nullopt) << "seed " << seed;
  }
}

}  // namespace
}  // namespace deepfreeze

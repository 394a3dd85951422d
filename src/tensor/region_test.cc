#include "tensor/region.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tensor/tensor_table.h"

namespace deepfreeze {
namespace {

std::optional<std::string> fault_of(const std::vector<Box>& boxes, const Shape& whole) {
  std::vector<const Box*> tiles;
  for (const Box& box : boxes) tiles.push_back(&box);
  return fault_of_tiling(tiles, whole);
}

TEST(Intersect, HasWhatBothHave) {
  const Box a{{0, 2}, {4, 4}};
  EXPECT_EQ(intersect(a, {{3, 0}, {4, 3}}), (Box{{3, 2}, {1, 1}}));
  EXPECT_EQ(intersect(a, a), a);
  EXPECT_EQ(intersect(a, {{4, 2}, {1, 1}}), std::nullopt) << "they touch";
  EXPECT_EQ(intersect(a, {{1, 3}, {0, 1}}), std::nullopt) << "one is empty";
  EXPECT_EQ(intersect({}, {}), Box{}) << "a scalar is one element";
}

TEST(Runs, AreAsLongAsBothBoxesLet) {
  const Box whole{{0, 0, 0}, {4, 3, 5}};
  const auto count = [&](const Box& common, const Box& to) {
    return runs_of(common, whole, to).size();
  };
  EXPECT_EQ(count(whole, whole), 1U);
  const Box rows{{1, 0, 0}, {2, 3, 5}};
  EXPECT_EQ(count(rows, rows), 1U) << "rows lie together";
  const Box columns{{0, 1, 0}, {4, 2, 5}};
  EXPECT_EQ(count(columns, columns), 4U) << "a run in each row";
  const Box last{{0, 0, 2}, {4, 3, 2}};
  EXPECT_EQ(count(last, last), 12U);
  EXPECT_EQ(runs_of({}, {}, {}).size(), 1U) << "a scalar";
  EXPECT_TRUE(runs_of({{0, 0, 0}, {0, 3, 5}}, whole, whole).empty());
}

TEST(Runs, BringEachElementToItsPlace) {
  const std::uint64_t seed = std::random_device()();
  std::mt19937_64 random(seed);
  for (int round = 0; round < 500; ++round) {
    const Shape whole = {1 + random() % 5, 1 + random() % 4, 1 + random() % 3};
    const auto any_box = [&] {
      Box box{Shape(3), Shape(3)};
      for (std::size_t i = 0; i < 3; ++i) {
        box.offset[i] = random() % whole[i];
        box.extent[i] = 1 + random() % (whole[i] - box.offset[i]);
      }
      return box;
    };
    const Box from = any_box();
    const Box to = any_box();
    const auto values_of = [&](const Box& box) {  // of each element, its place in the whole
      std::vector<std::uint64_t> values;
      for (std::uint64_t i = 0; i < box.extent[0]; ++i) {
        for (std::uint64_t j = 0; j < box.extent[1]; ++j) {
          for (std::uint64_t k = 0; k < box.extent[2]; ++k) {
            values.push_back(((box.offset[0] + i) * whole[1] + box.offset[1] + j) * whole[2] +
                             box.offset[2] + k);
          }
        }
      }
      return values;
    };
    const auto source = values_of(from);
    std::vector<std::uint64_t> target(element_count(to.extent), UINT64_MAX);
    const auto common = intersect(from, to);
    std::uint64_t moved = 0;
    for (const BoxRun& run : common ? runs_of(*common, from, to) : std::vector<BoxRun>()) {
      std::copy_n(source.begin() + static_cast<std::ptrdiff_t>(run.from), run.elements,
                  target.begin() + static_cast<std::ptrdiff_t>(run.to));
      moved += run.elements;
    }
    const auto wanted = values_of(to);
    for (std::size_t i = 0; i < target.size(); ++i) {
      const bool is_set = target[i] != UINT64_MAX;
      EXPECT_EQ(target[i], is_set ? wanted[i] : UINT64_MAX) << "seed " << seed;
    }
    EXPECT_EQ(moved, common ? element_count(common->extent) : 0U) << "seed " << seed;
  }
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

TEST(Tiling, OfAGridOfUnevenBoxesHasNoFault) {
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

TEST(Tiling, NeedNotBeCutFromSideToSide) {  // as bricks are laid around a hole
  const std::vector<Box> boxes = {
      {{0, 0}, {1, 2}}, {{0, 2}, {2, 1}}, {{2, 1}, {1, 2}}, {{1, 0}, {2, 1}}, {{1, 1}, {1, 1}}};
  EXPECT_EQ(fault_of(boxes, {3, 3}), std::nullopt);
}

TEST(Tiling, MayBeOfManyUnevenColumns) {
  std::vector<Box> boxes;
  for (std::uint64_t column = 0; column < 40; ++column) {
    for (std::uint64_t row = 0; row < 400; row += 10) {
      const std::uint64_t first = row == 0 ? 0 : row + column % 10;
      const std::uint64_t end = row == 390 ? 400 : row + 10 + column % 10;
      boxes.push_back({{first, column}, {end - first, 1}});
    }
  }
  EXPECT_EQ(fault_of(boxes, {400, 40}), std::nullopt);
  boxes.pop_back();
  EXPECT_TRUE(fault_of(boxes, {400, 40}).value_or("").contains("of 16000 elements"));
  boxes.push_back(boxes.front());
  EXPECT_NE(fault_of(boxes, {400, 40}), std::nullopt);
}

// A row off the top, a column off the left, and so on: each cut lies within the one before.
std::vector<Box> peeled(std::uint64_t size) {
  std::vector<Box> boxes;
  for (std::uint64_t i = 0; i < size; ++i) {
    boxes.push_back({{i, i}, {1, size - i}});
    boxes.push_back({{i + 1, i}, {size - i - 1, 1}});
  }
  return boxes;
}

// Hostile files decide the depth: a tiling that is too deep to check is refused.
TEST(Tiling, OfCutsWithinCutsIsLookedAtSoDeepAndNoDeeper) {
  EXPECT_EQ(fault_of(peeled(30), {30, 30}), std::nullopt);
  const auto fault = fault_of(peeled(200), {200, 200});
  EXPECT_TRUE(fault.value_or("").contains("too many for their layout")) << fault.value_or("none");
}

TEST(Tiling, OfOneElementOrNone) {
  const std::vector<Box> scalar = {{}};
  EXPECT_EQ(fault_of(scalar, {}), std::nullopt);
  EXPECT_NE(fault_of({}, {}), std::nullopt);
  EXPECT_EQ(fault_of({}, {3, 0}), std::nullopt);
}

TEST(Tiling, SaysWhatOverlapsAndHowMuchIsMissing) {
  const Box first{{0, 0}, {2, 2}};
  EXPECT_EQ(fault_of({first}, {3, 2}), "its boxes have 4 of 6 elements");
  EXPECT_EQ(fault_of({first, first}, {2, 2}),
            "a box at [0, 0] of [2, 2] overlaps one at [0, 0] of [2, 2]");
  const Box second{{1, 1}, {2, 1}};
  const auto fault = fault_of({first, second}, {3, 2});
  ASSERT_TRUE(fault.has_value());
  EXPECT_TRUE(fault->contains("overlaps")) << *fault;
}

// Cuts a box along a random dimension, and its halves again.
void split(const Box& box, std::mt19937_64& random, std::vector<Box>& boxes) {
  const std::size_t dimension = random() % box.extent.size();
  if (box.extent[dimension] < 2 || random() % 5 == 0) return boxes.push_back(box);
  const std::uint64_t at = 1 + random() % (box.extent[dimension] - 1);
  Box first = box;
  Box second = box;
  first.extent[dimension] = at;
  second.offset[dimension] += at;
  second.extent[dimension] -= at;
  split(first, random, boxes);
  split(second, random, boxes);
}

// Decides by marking each element.
bool is_tiling(const std::vector<Box>& boxes, const Shape& whole) {
  const Box region{Shape(whole.size()), whole};
  std::vector<int> count(element_count(whole));
  for (const Box& box : boxes) {
    for (const BoxRun& run : runs_of(box, region, box)) {
      for (std::uint64_t i = 0; i < run.elements; ++i) ++count[run.from + i];
    }
  }
  return std::ranges::all_of(count, [](int n) { return n == 1; });
}

// Random tilings, then one box moved, left out, doubled or made smaller.
TEST(Tiling, IsRightAboutRandomOnes) {
  const std::uint64_t seed = std::random_device()();
  std::mt19937_64 random(seed);
  int tilings = 0;
  for (int round = 0; round < 2'000; ++round) {
    const Shape whole = {1 + random() % 6, 1 + random() % 6, 1 + random() % 4};
    std::vector<Box> boxes;
    split({Shape(3), whole}, random, boxes);
    std::ranges::shuffle(boxes, random);
    Box& changed = boxes.front();
    const std::size_t dimension = random() % 3;
    switch (random() % 5) {
      case 0:
        boxes.push_back(changed);
        break;
      case 1:
        boxes.erase(boxes.begin());
        break;
      case 2:
        --changed.extent[dimension];
        break;
      case 3:
        changed.offset[dimension] = random() % (whole[dimension] - changed.extent[dimension] + 1);
      default:
        break;
    }
    const bool is_one = is_tiling(boxes, whole);
    tilings += is_one ? 1 : 0;
    EXPECT_EQ(!fault_of(boxes, whole), is_one) << "round " << round << ", seed " << seed;
  }
  EXPECT_GT(tilings, 300);
  EXPECT_LT(tilings, 1'700);
}

TEST(Boxes, AreOfOneTensorAndHaveAllOfIt) {
  const auto rows = [](std::uint64_t first, std::uint64_t end, std::uint64_t all) {
    return TensorSpec{.key = "w",
                      .dtype = DType::kF32,
                      .shape = {end - first},
                      .box = Box{{first}, {end - first}},
                      .global_shape = {all}};
  };
  const auto fault_of = [](const std::vector<TensorSpec>& specs) {
    std::vector<const TensorSpec*> all;
    for (const TensorSpec& spec : specs) all.push_back(&spec);
    return fault_of_boxes(all).value_or("");
  };
  const TensorSpec whole{.key = "w", .dtype = DType::kF32, .shape = {4}};
  EXPECT_EQ(fault_of({whole}), "");
  EXPECT_EQ(fault_of({whole, whole}), "it is stored twice");
  EXPECT_EQ(fault_of({whole, rows(0, 4, 4)}), "it is stored twice");
  EXPECT_EQ(fault_of({rows(0, 4, 4), whole}), "it is stored twice");
  EXPECT_EQ(fault_of({rows(0, 4, 4)}), "");
  EXPECT_EQ(fault_of({rows(0, 3, 4), rows(3, 4, 4), rows(4, 4, 4)}), "");
  EXPECT_EQ(fault_of({rows(0, 3, 4)}), "its boxes have 3 of 4 elements");
  EXPECT_TRUE(std::string_view(fault_of({rows(0, 3, 4), rows(2, 4, 4)})).contains("overlaps"));
  TensorSpec other = rows(3, 4, 4);
  other.dtype = DType::kI32;
  EXPECT_EQ(fault_of({rows(0, 3, 4), other}), "it is stored twice, with another dtype or shape");
  other = rows(3, 4, 4);
  other.logical_dtype = "float";
  EXPECT_EQ(fault_of({rows(0, 3, 4), other}), "it is stored twice, with another dtype or shape");
  EXPECT_EQ(fault_of({rows(0, 3, 4), rows(3, 4, 5)}),
            "it is stored twice, with another dtype or shape");
}

TEST(CheckSpec, KnowsTheSizeOfTheWhole) {
  TensorSpec spec{.key = "w", .dtype = DType::kU8, .shape = {1, 1}, .box = Box{{0, 0}, {1, 1}}};
  spec.global_shape = {1ULL << 32U, 1ULL << 31U};
  EXPECT_TRUE(check_spec(spec));
  spec.global_shape = {1ULL << 32U, 1ULL << 32U};
  EXPECT_FALSE(check_spec(spec)) << "it would seem to have no element";
}

}  // namespace
}  // namespace deepfreeze

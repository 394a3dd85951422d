#include "save/cold_tensors.h"

#include <gtest/gtest.h>

namespace deepfreeze::cold_tensors_test {
namespace {

constexpr std::uint64_t kMega = 1'000'000;

class ColdTensorsTest : public testing::Test {
 protected:
  // One save; the sizes are in MB, and a negative one has changed.
  void save(const std::vector<int>& tensors) {
    std::vector<TensorChange> changes;
    for (const int tensor : tensors) {
      changes.push_back({.bytes = static_cast<std::uint64_t>(std::abs(tensor)) * kMega,
                         .has_changed = tensor < 0});
    }
    tensors_.note(changes);
  }
  void save_times(int times, const std::vector<int>& tensors) {
    for (int i = 0; i < times; ++i) save(tensors);
  }
  [[nodiscard]] const std::vector<bool>& cold() const { return tensors_.cold(); }

  ColdTensors tensors_;
};

using Chosen = std::vector<bool>;

TEST_F(ColdTensorsTest, AreThoseThatTwoSavesHaveNotChanged) {
  save({20, -1});
  EXPECT_EQ(cold(), Chosen());
  save({20, -1});
  EXPECT_EQ(cold(), (Chosen{true, false}));
}

TEST_F(ColdTensorsTest, AreOf16MegabytesAtLeastAndATenthOfAll) {
  save_times(9, {15, -1});
  EXPECT_EQ(cold(), Chosen());
  save_times(9, {8, 7, -1});
  EXPECT_EQ(cold(), Chosen());
  save_times(9, {20, -1, -200, 0});
  EXPECT_EQ(cold(), Chosen()) << "less than a tenth";
  save_times(9, {9, 14, -1, -200, 0});
  EXPECT_EQ(cold(), (Chosen{true, true, false, false, false}));
  save_times(9, {16, -1});
  EXPECT_EQ(cold(), (Chosen{true, false}));
}

TEST_F(ColdTensorsTest, GoAtOnceIfTheyChange) {
  save_times(2, {20, 20, -1});
  EXPECT_EQ(cold(), (Chosen{true, true, false}));
  save({20, -20, -1});
  EXPECT_EQ(cold(), (Chosen{true, false, false}));
  save({-20, 20, -1});
  EXPECT_EQ(cold(), Chosen()) << "the rest is not worth a file";
}

TEST_F(ColdTensorsTest, ComeAtMostAllFiftySaves) {
  save_times(2, {20, -20});
  ASSERT_EQ(cold(), (Chosen{true, false}));
  save_times(49, {20, 20});
  EXPECT_EQ(cold(), (Chosen{true, false}));
  save({20, 20});
  EXPECT_EQ(cold(), (Chosen{true, true}));
}

TEST_F(ColdTensorsTest, StayAsTheyAreIfFewMoreWouldCome) {
  save_times(2, {100, -5});
  ASSERT_EQ(cold(), (Chosen{true, false}));
  save_times(120, {100, 5});
  EXPECT_EQ(cold(), (Chosen{true, false}));
}

TEST_F(ColdTensorsTest, AnotherNumberOfTensorsBeginsAnew) {
  save_times(2, {20, -1});
  save({20});
  EXPECT_EQ(cold(), Chosen());
  save({20});
  EXPECT_EQ(cold(), Chosen{true});
}

}  // namespace
}  // namespace deepfreeze::cold_tensors_test

#include "save/cold_files.h"

#include <gtest/gtest.h>

#include <set>

namespace deepfreeze::cold_files_test {
namespace {

class ColdFilesState : public testing::Test {
 protected:
  ColdFilesState() { files_.begin(table_, {.run_id = "00000000000000aa"}, {}); }

  // One committed save; returns the copy that it has, or -1 if it wrote one.
  int save(std::uint64_t step) { return save(files_, step); }
  static int save(ColdFiles& files, std::uint64_t step) {
    const ColdFiles::Turn turn = files.next_turn();
    files.note(turn, {step, step}, turn.must_write);
    return turn.must_write ? -1 : static_cast<int>(turn.copy);
  }

  const std::shared_ptr<const TablePlan> table_ = std::make_shared<const TablePlan>();
  ColdFiles files_;
};

TEST_F(ColdFilesState, TwoCopiesAreWrittenAndThenLinkedInTurn) {
  EXPECT_TRUE(files_.are_of(table_));
  EXPECT_FALSE(files_.are_of(std::make_shared<const TablePlan>()));
  EXPECT_EQ(save(1), -1);
  EXPECT_EQ(save(2), -1);
  EXPECT_EQ(save(3), 0);
  EXPECT_EQ(save(4), 1);
  EXPECT_EQ(save(5), 0);
  EXPECT_EQ(files_.sources(0).front().step, 5U);
  EXPECT_EQ(files_.sources(1).front().step, 4U);
}

TEST_F(ColdFilesState, ACopyIsWrittenAnewAfterAHundredSaves) {
  std::multiset<std::uint64_t> written;
  for (std::uint64_t step = 1; step <= 310; ++step) {
    if (save(step) == -1) written.insert(step);
  }
  EXPECT_EQ(written, (std::multiset<std::uint64_t>{1, 2, 101, 102, 201, 202, 301, 302}));
  EXPECT_EQ(files_.sources(0).back().step, 301U) << "older attempts have the old copy";
}

TEST_F(ColdFilesState, ACopyIsWrittenAnewOnceItIsOld) {
  ColdFiles files({.age_max = {}});
  files.begin(table_, {}, {});
  for (std::uint64_t step = 1; step <= 4; ++step) EXPECT_EQ(save(files, step), -1);
}

TEST_F(ColdFilesState, OnlyTheNewestSourcesAreKept) {
  for (std::uint64_t step = 1; step <= 60; ++step) save(step);
  EXPECT_EQ(files_.sources(0).size(), kColdSourcesMax);
  EXPECT_EQ(files_.sources(0).front().step, 59U);
}

TEST_F(ColdFilesState, NothingIsKnownOnceForgotten) {
  save(1);
  files_.forget();
  EXPECT_FALSE(files_.are_of(table_));
  EXPECT_FALSE(files_.are_of(nullptr));
}

}  // namespace
}  // namespace deepfreeze::cold_files_test

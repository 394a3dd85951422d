#include "save/run_writer.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/log.h"
#include "manifest/commit.h"
#include "save/restored_points.h"
#include "support/code_of.h"
#include "support/sim_disk.h"

namespace deepfreeze {
namespace {

Point point_of(const Identity& identity) {
  return {.generation = identity.generation,
          .step = identity.step,
          .save_index = identity.save_index,
          .attempt_id = identity.attempt_id};
}

class RunWriterTest : public testing::Test {
 protected:
  RunWriterTest() {
    set_log_sink([](std::string_view) {});
  }
  ~RunWriterTest() override { set_log_sink({}); }

  RunWriter open() { return RunWriter::open(disk_, std::nullopt).value(); }
  std::optional<Point> newest_claim() {
    return read_run(disk_).value().claims.back().record.value().resumed_from;
  }

  SimDisk disk_;
};

TEST(RestoredPoints, ARunThatWasNotRestoredHasNone) {
  EXPECT_FALSE(restored_point("0123456789abcdef").has_value());
}

TEST_F(RunWriterTest, WhatIsPreparedAfterARollbackDoesNotUndoIt) {
  RunWriter writer = open();
  const Point old = point_of(writer.next_identity(50).value());
  ASSERT_TRUE(writer.next_identity(100));
  writer.continue_from(old);
  ASSERT_TRUE(writer.prepare());
  EXPECT_FALSE(writer.must_claim(60));
  EXPECT_EQ(writer.next_identity(60)->generation, 2U);
  EXPECT_EQ(newest_claim(), old);
}

TEST_F(RunWriterTest, AFencedClaimOfItsNodesIsRemembered) {
  RunWriter writer = open();
  ASSERT_TRUE(writer.end_claim(writer.begin_claim(1, {}).value()));
  ASSERT_TRUE(writer.identity_if_claimed(1).value());
  writer.note_failed_claim(Error(ErrorCode::kIo, "no link"));
  ASSERT_TRUE(writer.identity_if_claimed(2).value());
  writer.note_failed_claim(Error(ErrorCode::kFenced, "taken over"));
  for (const std::uint64_t step : {3U, 4U}) {
    EXPECT_EQ(code_of(writer.identity_if_claimed(step)), ErrorCode::kFenced);
  }
  writer.continue_from(newest_claim().value_or(Point{}));
  EXPECT_TRUE(writer.identity_if_claimed(5));
}

TEST_F(RunWriterTest, EachClaimRecordsTheRulesOfItsProcess) {
  const Keep rules{.last = 2, .every = {}, .best = Keep::Best{.metric = "loss"}};
  ASSERT_TRUE(RunWriter::open(disk_, std::nullopt, rules)->next_identity(1));
  EXPECT_EQ(read_run(disk_)->claims.back().record->keep, rules);
  ASSERT_TRUE(open().next_identity(2));
  EXPECT_EQ(read_run(disk_)->claims.back().record->keep, Keep{});
}

TEST_F(RunWriterTest, WhatADeadProcessLeftUndecidedIsAbortedByTheClaim) {
  ASSERT_TRUE(begin_attempt(disk_, {70, 7}));
  RunWriter writer = open();
  const auto is_undecided = [&] {
    return std::ranges::any_of(read_run(disk_).value().attempts, &AttemptState::undecided);
  };
  EXPECT_TRUE(is_undecided()) << "it may be a living one's";
  ASSERT_TRUE(writer.next_identity(71));
  EXPECT_FALSE(is_undecided());
}

TEST_F(RunWriterTest, ASecondRollbackToTheSameStepAbandonsWhatCameBetween) {
  RunWriter writer = open();
  const Point old = point_of(writer.next_identity(50).value());
  for (std::uint64_t generation = 2; generation < 5; ++generation) {
    writer.continue_from(old);
    EXPECT_EQ(writer.next_identity(60)->generation, generation);
    EXPECT_EQ(newest_claim(), old);
  }
}

TEST_F(RunWriterTest, AStepThatWentBackGoesOnFromTheNewestSave) {
  RunWriter writer = open();
  const Point newest = point_of(writer.next_identity(100).value());
  EXPECT_TRUE(writer.must_claim(60));
  ASSERT_TRUE(writer.next_identity(60));
  EXPECT_EQ(newest_claim(), newest);
  EXPECT_FALSE(writer.must_claim(61));
}

// It may be on the disk, and newer than the one that was held.
TEST_F(RunWriterTest, AClaimThatFailedAnywhereFencesNobody) {
  std::uint64_t operation = 0;
  for (;; ++operation) {
    SimDisk disk;
    RunWriter writer = RunWriter::open(disk, std::nullopt).value();
    const Point newest = point_of(writer.next_identity(100).value());
    disk.fail_at(disk.operation_count() + operation, EIO);
    if (writer.next_identity(60)) break;  // claims, because the step went back
    const auto next = writer.next_identity(101);
    ASSERT_TRUE(next) << operation << ": " << next.error().message();
    writer.continue_from(newest);
    EXPECT_TRUE(writer.next_identity(102)) << operation;
  }
  EXPECT_GT(operation, 3U);
}

// Wherever the claim of a process that goes back fails, somebody may take the run over meanwhile.
TEST_F(RunWriterTest, AfterAFailedClaimAProcessDoesNotTakeTheRunBackFromItsSuccessor) {
  std::uint64_t operation = 0;
  for (;; ++operation) {
    SimDisk disk;
    RunWriter writer = RunWriter::open(disk, std::nullopt).value();
    const Point first = point_of(writer.next_identity(1).value());
    writer.continue_from(first);
    disk.fail_at(disk.operation_count() + operation, EIO);
    if (writer.next_identity(2)) break;
    RunWriter successor = RunWriter::open(disk, std::nullopt).value();
    ASSERT_TRUE(successor.next_identity(2)) << operation;
    EXPECT_EQ(code_of(writer.next_identity(2)), ErrorCode::kFenced) << operation;
    EXPECT_TRUE(successor.next_identity(3)) << operation;
    writer.continue_from(first);
    EXPECT_TRUE(writer.next_identity(2)) << operation << ": a restore gives the right again";
  }
  EXPECT_GT(operation, 3U);
}

TEST_F(RunWriterTest, AFencedProcessDoesNotTakeARunThatIsEmptied) {
  RunWriter fenced = open();
  ASSERT_TRUE(fenced.next_identity(1));
  RunWriter owner = open();
  ASSERT_TRUE(owner.next_identity(1));
  ASSERT_EQ(code_of(fenced.next_identity(2)), ErrorCode::kFenced);
  const std::vector<DirEntry> entries = disk_.list("").value();
  for (const DirEntry& entry : entries) {
    ASSERT_TRUE(disk_.remove_file(entry.name));
  }
  EXPECT_EQ(code_of(fenced.next_identity(3)), ErrorCode::kFenced);
  EXPECT_EQ(code_of(fenced.prepare()), ErrorCode::kFenced);
  EXPECT_TRUE(owner.next_identity(3));
}

TEST_F(RunWriterTest, AStepThatGoesBackDoesNotTakeTheRunFromAnother) {
  RunWriter fenced = open();
  ASSERT_TRUE(fenced.next_identity(5));
  ASSERT_TRUE(open().next_identity(5));
  EXPECT_EQ(code_of(fenced.next_identity(3)), ErrorCode::kFenced);
}

}  // namespace
}  // namespace deepfreeze

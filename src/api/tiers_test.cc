// A Checkpointer with farther tiers, over real directories.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <thread>

#include "api/checkpointer_fixture.h"
#include "support/code_of.h"
#include "support/thread_ranks.h"

namespace deepfreeze {
namespace {

using Steps = std::vector<std::uint64_t>;

class FarTiersTest : public EngineTest {
 protected:
  [[nodiscard]] fs::path far() const { return root_ / "far"; }
  [[nodiscard]] Options with_tier(Tier tier = {}) const {
    if (tier.path.empty()) tier.path = far().string();
    Options options;
    options.tiers = {std::move(tier)};
    return options;
  }
  [[nodiscard]] static fs::path first_file(const std::string& attempt) {
    for (const auto& entry : fs::directory_iterator(attempt)) {
      if (entry.path().extension() == ".safetensors") return entry.path();
    }
    return {};
  }
  static void flip_last_byte(const fs::path& path) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(-1, std::ios::end);
    const int byte = file.get();
    file.seekp(-1, std::ios::end);
    file.put(static_cast<char>(byte ^ 1));
    ASSERT_TRUE(file.good());
  }
  static deepfreeze::State restored(Checkpointer& run, RestoreReport* report = nullptr) {
    deepfreeze::State state;
    const auto found = restore_newest(run, state.targets());
    EXPECT_TRUE(found.has_value()) << found.error().message();
    if (report != nullptr && found) *report = *found;
    return state;
  }
};

TEST_F(FarTiersTest, DurableIsCommittedOnTheLastTier) {
  Checkpointer run = open(with_tier());
  const SaveHandle handle = save(run, 1);
  ASSERT_TRUE(handle.wait(Level::kDurable, kDeadline));
  EXPECT_EQ(steps_of(far()), Steps{1});
  const SaveStatus status = handle.status();
  EXPECT_TRUE(status.local);
  ASSERT_EQ(status.tiers.size(), 1U);
  EXPECT_EQ(status.tiers[0].state, TierProgress::State::kCommitted);
  EXPECT_EQ(status.tiers[0].path, far().string());
  ASSERT_EQ(run.tiers().size(), 1U);
  EXPECT_EQ(run.tiers()[0].committed, 1U);
}

TEST_F(FarTiersTest, AStepThatIsNotMeantForATierIsDurableWithoutIt) {
  Checkpointer run = open(with_tier({.path = far().string(), .every = 2}));
  const SaveHandle odd = save(run, 1);
  ASSERT_TRUE(odd.wait(Level::kDurable, kDeadline));
  EXPECT_EQ(odd.status().tiers[0].state, TierProgress::State::kNotMeant);
  ASSERT_TRUE(save(run, 2).wait(Level::kDurable, kDeadline));
  EXPECT_EQ(steps_of(far()), Steps{2});
}

TEST_F(FarTiersTest, CloseBringsTheRestAndKeepsByEachTiersRules) {
  Options options = with_tier({.path = far().string(), .keep = {.last = 3}});
  options.keep = {.last = 1};
  {
    Checkpointer run = open(options);
    for (std::uint64_t step = 1; step <= 5; ++step) {
      ASSERT_TRUE(save(run, step).wait(Level::kDurable, kDeadline));
    }
    ASSERT_TRUE(run.close());
  }
  EXPECT_EQ(steps_of(run_dir()), Steps{5});
  EXPECT_EQ(steps_of(far()), (Steps{5, 4, 3}));
  EXPECT_EQ(warnings_, std::vector<std::string>{});
}

TEST_F(FarTiersTest, TheTierAloneIsARun) {
  {
    Checkpointer run = open(with_tier());
    ASSERT_TRUE(save(run, 7).wait(Level::kDurable, kDeadline));
  }
  fs::remove_all(run_dir());
  auto opened = Checkpointer::open(far(), {});
  ASSERT_TRUE(opened) << opened.error().message();
  EXPECT_EQ(restored(*opened), state_at(7));
}

TEST_F(FarTiersTest, AnotherMachineGoesOnFromTheTier) {
  {
    Checkpointer run = open(with_tier());
    ASSERT_TRUE(save(run, 7).wait(Level::kDurable, kDeadline));
  }
  fs::remove_all(run_dir());
  {
    Checkpointer run = open(with_tier());
    RestoreReport report;
    EXPECT_EQ(restored(run, &report), state_at(7));
    EXPECT_EQ(report.restored.path.find(far().string()), 0U);
    ASSERT_TRUE(save(run, 8).wait(Level::kDurable, kDeadline));
  }
  const auto listed = list_checkpoints(far());
  ASSERT_TRUE(listed);
  ASSERT_EQ(listed->size(), 2U);
  EXPECT_FALSE((*listed)[1].abandoned);
  EXPECT_EQ((*listed)[0].generation, 2U);
}

TEST_F(FarTiersTest, ABadBlockComesFromTheNextTierAndIsHealed) {
  Checkpointer run = open(with_tier());
  ASSERT_TRUE(save(run, 3).wait(Level::kDurable, kDeadline));
  const auto infos = run.candidates();
  ASSERT_TRUE(infos);
  ASSERT_EQ(infos->front().copies.size(), 1U);
  flip_last_byte(first_file(infos->front().path));
  ASSERT_FALSE(verify_checkpoint(infos->front())->empty());
  RestoreReport report;
  EXPECT_EQ(restored(run, &report), state_at(3));
  EXPECT_TRUE(report.fell_back_from.empty());
  ASSERT_TRUE(run.drain(kDeadline));
  EXPECT_TRUE(verify_checkpoint(infos->front())->empty());
}

TEST_F(FarTiersTest, AMissingFileComesFromTheNextTierAndIsHealed) {
  Checkpointer run = open(with_tier());
  ASSERT_TRUE(save(run, 3).wait(Level::kDurable, kDeadline));
  const auto infos = run.candidates();
  ASSERT_TRUE(infos);
  fs::remove(first_file(infos->front().path));
  EXPECT_EQ(restored(run), state_at(3));
  ASSERT_TRUE(run.drain(kDeadline));
  EXPECT_TRUE(verify_checkpoint(infos->front())->empty());
}

TEST_F(FarTiersTest, AFaultOnAllTiersFallsBackAndSaysSo) {
  Checkpointer run = open(with_tier());
  ASSERT_TRUE(save(run, 2).wait(Level::kDurable, kDeadline));
  ASSERT_TRUE(save(run, 3).wait(Level::kDurable, kDeadline));
  const auto infos = run.candidates();
  ASSERT_TRUE(infos);
  flip_last_byte(first_file(infos->front().path));
  flip_last_byte(first_file(infos->front().copies.front()));
  RestoreReport report;
  EXPECT_EQ(restored(run, &report), state_at(2));
  ASSERT_EQ(report.fell_back_from.size(), 1U);
  EXPECT_EQ(report.fell_back_from[0].first.step, 3U);
}

// It may have a good copy: its error counts, and an older checkpoint is not taken.
TEST_F(FarTiersTest, ATierThatCannotBeAskedIsNoneWithoutACopy) {
  Checkpointer run = open(with_tier());
  ASSERT_TRUE(save(run, 3).wait(Level::kDurable, kDeadline));
  CheckpointInfo info = run.candidates().value().front();
  ::setenv("AWS_ENDPOINT_URL_S3", "ftp://wrong", 1);
  const std::string far = info.copies.front();
  const std::string store = "s3://bucket/run/" + fs::path(far).filename().string();
  const auto code_with = [&](const std::vector<std::string>& copies) {
    info.copies = copies;
    return code_of(open_checkpoint(info));
  };
  fs::remove(first_file(info.path));
  EXPECT_EQ(code_with({}), ErrorCode::kIncomplete);
  EXPECT_EQ(code_with({store}), ErrorCode::kInvalidArgument);
  info.copies = {store, far};
  EXPECT_TRUE(open_checkpoint(info));
  fs::remove_all(info.path);
  EXPECT_EQ(code_with({}), ErrorCode::kGone);
  EXPECT_EQ(code_with({store}), ErrorCode::kInvalidArgument);
  info.copies = {store, far};
  EXPECT_TRUE(open_checkpoint(info));
  info.path = store;
  info.copies = {far};
  fs::remove(first_file(far));
  EXPECT_EQ(code_of(open_checkpoint(info)), ErrorCode::kInvalidArgument);
  ::unsetenv("AWS_ENDPOINT_URL_S3");
}

// One tier has a bad first file, the other a bad second one.
TEST_F(FarTiersTest, EachFileComesFromTheTierThatHasItWhole) {
  Checkpointer run = open(with_tier());
  ASSERT_TRUE(save(run, 3).wait(Level::kDurable, kDeadline));
  const auto infos = run.candidates();
  ASSERT_TRUE(infos);
  // One block each, so that no tier has the file whole.
  const fs::path near_file = first_file(infos->front().path);
  const fs::path far_file = first_file(infos->front().copies.front());
  flip_last_byte(near_file);
  {
    std::fstream file(far_file, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(fs::file_size(far_file) / 2));
    file.put('\x5a');
  }
  EXPECT_EQ(restored(run), state_at(3));
}

TEST_F(FarTiersTest, WhatADeadProcessLeftIsBroughtByTheNext) {
  {
    Checkpointer run = open();
    save_durably(run, 1);
  }
  Checkpointer run = open(with_tier());
  EXPECT_TRUE(run.drain(kDeadline));
  EXPECT_EQ(steps_of(far()), Steps{1});
}

TEST_F(FarTiersTest, WhatATierStillWaitsForIsNotDeleted) {
  Options options = with_tier();
  options.keep = {.last = 1};
  options.tiers[0].bytes_per_second = 100'000;
  options.drain_wait_max = milliseconds(0);
  {
    Checkpointer run = open(options);
    for (std::uint64_t step = 1; step <= 3; ++step) {
      ASSERT_TRUE(save(run, step).wait(Level::kLocal, kDeadline));
    }
  }
  EXPECT_EQ(steps_of(run_dir()), (Steps{3, 2, 1}));
  options.tiers[0].bytes_per_second = 0;
  options.drain_wait_max = kDeadline;
  {
    Checkpointer run = open(options);
    ASSERT_TRUE(run.drain(kDeadline));
    EXPECT_EQ(steps_of(far()), (Steps{3, 2, 1}));
  }
}

TEST_F(FarTiersTest, ReadOnlyReadsFromAllTiersAndChangesNothing) {
  {
    Checkpointer run = open(with_tier());
    ASSERT_TRUE(save(run, 1).wait(Level::kDurable, kDeadline));
  }
  flip_last_byte(first_file(list_checkpoints(run_dir())->front().path));
  Options options = with_tier();
  options.read_only = true;
  Checkpointer run = open(options);
  EXPECT_EQ(restored(run), state_at(1));
  EXPECT_FALSE(verify_checkpoint(list_checkpoints(run_dir())->front())->empty());
}

TEST_F(FarTiersTest, ADeletedCheckpointIsDeletedOnAllTiers) {
  Checkpointer run = open(with_tier());
  ASSERT_TRUE(save(run, 1).wait(Level::kDurable, kDeadline));
  ASSERT_TRUE(save(run, 2).wait(Level::kDurable, kDeadline));
  ASSERT_TRUE(delete_checkpoint(run.candidates()->front()));
  EXPECT_EQ(steps_of(run_dir()), Steps{1});
  EXPECT_EQ(steps_of(far()), Steps{1});
}

TEST_F(FarTiersTest, TiersThatAreOneDirectoryAreRefused) {
  fs::create_directories(run_dir());
  fs::create_directory_symlink(run_dir(), root_ / "link");
  for (const fs::path& path : {run_dir(), run_dir() / "inside", root_, root_ / "link"}) {
    const auto opened = Checkpointer::open(run_dir(), with_tier({.path = path.string()}));
    ASSERT_FALSE(opened) << path;
    EXPECT_EQ(opened.error().code(), ErrorCode::kInvalidArgument) << opened.error().message();
  }
  Options twice = with_tier();
  twice.tiers.push_back(twice.tiers.front());
  EXPECT_FALSE(Checkpointer::open(run_dir(), twice));
}

TEST_F(FarTiersTest, RulesThatMakeNoSenseAreRefused) {
  EXPECT_FALSE(Checkpointer::open(run_dir(), with_tier({.path = far().string(), .every = 0})));
  EXPECT_FALSE(
      Checkpointer::open(run_dir(), with_tier({.path = far().string(), .keep = {.last = 0}})));
}

TEST_F(FarTiersTest, ATierOfAnotherRunIsRefused) {
  {
    auto other = Checkpointer::open(far(), {});
    ASSERT_TRUE(other);
    save_durably(*other, 1);
  }
  {
    Checkpointer run = open();
    save_durably(run, 1);
  }
  const auto opened = Checkpointer::open(run_dir(), with_tier());
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code(), ErrorCode::kMismatch) << opened.error().message();
}

TEST_F(FarTiersTest, AStepThatGaveWayIsNotDurable) {
  Options options = with_tier({.path = far().string(), .keep = {.last = 1}});
  options.keep = {.last = 1};
  options.tiers[0].bytes_per_second = 1;  // it never arrives
  options.drain_wait_max = milliseconds(0);
  Checkpointer run = open(options);
  ASSERT_TRUE(save(run, 1).wait(Level::kLocal, kDeadline));
  while (!run.tiers()[0].step) std::this_thread::yield();  // it is on its way, and stays
  const SaveHandle second = save(run, 2);
  ASSERT_TRUE(second.wait(Level::kLocal, kDeadline));
  const SaveHandle third = save(run, 3);
  ASSERT_TRUE(third.wait(Level::kLocal, kDeadline));
  const Status lost = second.wait(Level::kDurable, kDeadline);
  ASSERT_FALSE(lost);
  EXPECT_EQ(lost.error().code(), ErrorCode::kCancelled) << lost.error().message();
  EXPECT_FALSE(second.status().error);
  EXPECT_TRUE(second.wait(Level::kLocal, kDeadline));
  ASSERT_TRUE(run.close());
  EXPECT_EQ(third.wait(Level::kDurable, kDeadline).error().code(), ErrorCode::kCancelled);
}

TEST_F(FarTiersTest, DurableIsOnTheLastTierForEveryRank) {
  const auto open_as = [&](const std::shared_ptr<RankGroup>& group) {
    Options options = with_tier();
    options.ranks = group;
    return open(options);
  };
  ThreadRanks(2).run([&](std::uint32_t, const std::shared_ptr<RankGroup>& group) {
    Checkpointer run = open_as(group);
    for (const std::uint64_t step : {1U, 2U}) {
      ASSERT_TRUE(save(run, step).wait(Level::kDurable, kDeadline));
      EXPECT_EQ(steps_of(far()).front(), step);
    }
  });
  // Another number of ranks goes on from the tier alone.
  fs::remove_all(run_dir());
  ThreadRanks(3).run([&](std::uint32_t, const std::shared_ptr<RankGroup>& group) {
    Checkpointer run = open_as(group);
    EXPECT_EQ(restored(run), state_at(2));
    EXPECT_TRUE(save(run, 3).wait(Level::kDurable, kDeadline));
  });
}

// The run went on from another machine, and both have claimed since.
TEST_F(FarTiersTest, AClaimIsAboveThoseThatAnotherMachineMade) {
  Checkpointer here = open(with_tier());
  ASSERT_TRUE(save(here, 1).wait(Level::kDurable, kDeadline));
  {
    auto there = Checkpointer::open(root_ / "elsewhere", with_tier());
    ASSERT_TRUE(there) << there.error().message();
    EXPECT_EQ(restored(*there), state_at(1));
    ASSERT_TRUE(save(*there, 2).wait(Level::kDurable, kDeadline));
  }
  EXPECT_EQ(restored(here), state_at(2));
  ASSERT_TRUE(save(here, 3).wait(Level::kLocal, kDeadline));
  const auto infos = here.candidates();
  ASSERT_TRUE(infos);
  EXPECT_EQ(infos->front().generation, 3U);
  EXPECT_GT(infos->front().save_index, (*infos)[1].save_index);
}

TEST_F(FarTiersTest, AReaderWithoutAnythingOfTheRunReadsTheTier) {
  {
    Checkpointer run = open(with_tier());
    ASSERT_TRUE(save(run, 4).wait(Level::kDurable, kDeadline));
  }
  fs::remove_all(run_dir());
  Options options = with_tier();
  options.read_only = true;
  Checkpointer run = open(options);
  EXPECT_EQ(restored(run), state_at(4));
}

TEST_F(FarTiersTest, ARunWhoseDirectoryIsLostGoesOnAsTheSameRun) {
  Checkpointer run = open(with_tier());
  ASSERT_TRUE(save(run, 1).wait(Level::kDurable, kDeadline));
  fs::remove_all(run_dir());
  ASSERT_TRUE(save(run, 2).wait(Level::kDurable, kDeadline));
  EXPECT_EQ(steps_of(far()), (Steps{2, 1}));
  const auto listed = list_checkpoints(far());
  EXPECT_FALSE(listed->back().abandoned);
}

TEST_F(FarTiersTest, ATierThatCannotBeReadFailsTheRestoreByName) {
  {
    Checkpointer run = open(with_tier());
    ASSERT_TRUE(save(run, 1).wait(Level::kDurable, kDeadline));
  }
  Options options = with_tier();
  options.read_only = true;  // nothing is flushed, so a ruined tier stays so
  Checkpointer run = open(options);
  std::ofstream(far() / "deepfreeze.json") << "{}";
  for (const auto& entry : fs::directory_iterator(far())) {
    if (entry.path().filename() != "deepfreeze.json") fs::remove_all(entry.path());
  }
  deepfreeze::State state;
  const auto found = restore_newest(run, state.targets());
  ASSERT_FALSE(found);
  EXPECT_NE(found.error().message().find(far().string()), std::string::npos)
      << found.error().message();
}

}  // namespace
}  // namespace deepfreeze

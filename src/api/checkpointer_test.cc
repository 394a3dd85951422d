// The public interface end to end, on the real file system.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>
#include <sstream>
#include <tuple>

#include "api/checkpointer_fixture.h"
#include "api/open_checkpoint.h"
#include "base/fail_point.h"
#include "base/log.h"
#include "base/scope_exit.h"
#include "base/thread_sanitizer.h"
#include "deepfreeze/deepfreeze.h"
#include "format/records.h"
#include "support/code_of.h"

namespace deepfreeze {
namespace {

void flip_one_bit(const fs::path& file, std::uint64_t offset) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(static_cast<std::streamoff>(offset));
  const char byte = static_cast<char>(stream.get() ^ 4);
  stream.seekp(static_cast<std::streamoff>(offset));
  stream.put(byte);
}

std::string read_whole(const fs::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

fs::path data_file_of(const CheckpointInfo& info) {
  for (const auto& entry : fs::directory_iterator(info.path)) {
    if (entry.path().extension() == ".safetensors") return entry.path();
  }
  return {};
}

// As a program finds its run that changes its directory.
TEST_F(EngineTest, ARelativePathMeansTheDirectoryThatItMeantFirst) {
  const fs::path before = fs::current_path();
  const ScopeExit go_back([&before] { fs::current_path(before); });
  fs::current_path(root_);
  auto run = Checkpointer::open("run", {.parent = ParentPoint{"base", 7}}).value();
  save_durably(run, 1);
  const auto listed = list_checkpoints("run").value();
  fs::create_directory(root_ / "elsewhere");
  fs::current_path(root_ / "elsewhere");
  save_durably(run, 2);
  EXPECT_EQ(steps_of(run_dir()), (std::vector<std::uint64_t>{2, 1}));
  EXPECT_FALSE(fs::exists("run"));
  EXPECT_EQ(fs::path(listed.front().path).parent_path(), run_dir());
  EXPECT_TRUE(verify_checkpoint(listed.front()).value().empty());
  const std::string record = read_whole(run_dir() / "deepfreeze.json");
  EXPECT_TRUE(record.contains((root_ / "base").lexically_normal().string())) << record;
}

TEST_F(EngineTest, AnEmptyPathIsRefused) {
  const auto opened = Checkpointer::open("", {});
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_FALSE(list_checkpoints(""));
}

// For callers that show the progress.
TEST_F(EngineTest, ReadingAndVerifyingTellHowFarTheyAre) {
  auto run = open();
  save_durably(run, 1);
  const auto info = list_checkpoints(run_dir()).value().front();
  std::vector<std::uint64_t> told;
  const auto note = [&told](std::uint64_t bytes) { told.push_back(bytes); };
  State live;
  ASSERT_TRUE(open_checkpoint(info)->read(live.targets(), true, note));
  const std::uint64_t bytes = live.weights.size() * sizeof(float) + live.counters.size();
  ASSERT_FALSE(told.empty());
  EXPECT_TRUE(std::ranges::is_sorted(told));
  EXPECT_EQ(told.back(), bytes);
  told.clear();
  ASSERT_TRUE(verify_checkpoint(info, note));
  ASSERT_FALSE(told.empty());
  EXPECT_TRUE(std::ranges::is_sorted(told));
  EXPECT_GE(told.back(), bytes);
}

TEST_F(EngineTest, RestoresWhatWasSavedInAnotherInstance) {
  {
    Checkpointer run = open();
    save_durably(run, 1);
    save_durably(run, 2);
  }
  Checkpointer resumed = open();
  State state;
  const auto report = restore_newest(resumed, state.targets());
  ASSERT_TRUE(report.has_value()) << report.error().message();
  EXPECT_EQ(report->restored.step, 2U);
  EXPECT_TRUE(report->fell_back_from.empty());
  EXPECT_EQ(state, state_at(2));
}

TEST_F(EngineTest, PrewarmDoesWhatTheFirstSaveWouldAndNoMore) {
  Checkpointer run = open();
  const State state = state_at(1);
  ASSERT_TRUE(run.prewarm({.tensors = state.table()}));
  EXPECT_TRUE(run.candidates()->empty());
  EXPECT_TRUE(fs::exists(run_dir() / "generation-00000001.json"));
  ASSERT_TRUE(run.prewarm({.tensors = state.table()}));
  save_durably(run, 1);
  ASSERT_TRUE(run.prewarm({.tensors = state.table()}));
  EXPECT_FALSE(fs::exists(run_dir() / "generation-00000002.json"));
  EXPECT_EQ(run.candidates()->front().generation, 1U);
}

// Nothing is wrong with the checkpoint: an older one would not have the tensor either.
TEST_F(EngineTest, ATensorThatIsNotStoredIsAMismatchAndNoReasonToFallBack) {
  Checkpointer run = open();
  save_durably(run, 1);
  std::array<std::byte, 4> into{};
  const auto report = restore_newest(run, std::array{RestoreTarget{"nobody's", into}});
  ASSERT_FALSE(report.has_value());
  EXPECT_EQ(report.error().code(), ErrorCode::kMismatch) << report.error().message();
}

TEST_F(EngineTest, ARunWithoutCheckpointsIsNotFoundAndMayStartAfresh) {
  Checkpointer run = open();
  State state;
  const auto report = restore_newest(run, state.targets());
  ASSERT_FALSE(report.has_value());
  EXPECT_EQ(report.error().code(), ErrorCode::kNotFound) << report.error().message();
}

TEST_F(EngineTest, WhoRestoresTheNewestGoesOnFromIt) {
  {
    Checkpointer first = open();
    save_durably(first, 1);
  }
  Checkpointer second = open();
  State state;
  ASSERT_TRUE(restore_newest(second, state.targets()).has_value());
  save_durably(second, 2);
  const auto listed = list_checkpoints(run_dir());
  ASSERT_EQ(listed->size(), 2U);
  EXPECT_FALSE(listed->at(1).abandoned);
}

// The attempt was committed when it was listed: a take-over may not abort it, a hostile hand may.
TEST_F(EngineTest, AnAbortedAttemptIsNoCheckpoint) {
  Checkpointer run = open();
  save_durably(run, 1);
  const CheckpointInfo info = run.candidates()->front();
  const fs::path path = fs::path(info.path) / "manifest.json";
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  Manifest manifest = decode_manifest(text.str()).value();
  manifest.outcome = Outcome::kAborted;
  manifest.files.clear();
  std::ofstream(path, std::ios::trunc) << encode_manifest(manifest);
  const auto opened = open_checkpoint(info);
  ASSERT_FALSE(opened.has_value());
  EXPECT_EQ(opened.error().code(), ErrorCode::kGone) << opened.error().message();
}

TEST_F(EngineTest, DeletesWhatIsNamed) {
  {
    Checkpointer run = open();
    for (std::uint64_t step = 1; step <= 3; ++step) save_durably(run, step);
  }
  const auto before = list_checkpoints(run_dir());
  ASSERT_EQ(before->size(), 3U);
  EXPECT_TRUE(delete_checkpoint((*before)[1]));
  EXPECT_TRUE(delete_checkpoint((*before)[1])) << "gone already";
  const auto after = list_checkpoints(run_dir());
  ASSERT_EQ(after->size(), 2U);
  EXPECT_EQ(after->front().step, 3U);
  EXPECT_EQ(after->back().step, 1U);
  EXPECT_TRUE(delete_checkpoint(after->front())) << "the newest, too";
  EXPECT_EQ(list_checkpoints(run_dir())->front().step, 1U);
}

TEST_F(EngineTest, AClosedOneRefusesEveryCall) {
  Checkpointer run = open();
  save_durably(run, 1);
  const CheckpointInfo info = run.candidates()->front();
  const State state = state_at(2);
  ASSERT_TRUE(run.close());
  const auto expect_refused = [](const auto& result) {
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().code(), ErrorCode::kUnsupported) << result.error().message();
  };
  expect_refused(run.candidates());
  expect_refused(run.as_rank0(true));
  expect_refused(run.agree("", {}));
  expect_refused(run.continue_from(info));
  expect_refused(run.save({.step = 2, .tensors = state.table()}));
  expect_refused(run.begin_capture(state.table()));
  expect_refused(run.drain(kDeadline));
}

TEST_F(EngineTest, PrewarmDoesNotTakeTheMemoryOfASaveInFlight) {
  Checkpointer run = open({.busy_wait_max = milliseconds(20)});
  const State state = state_at(1);
  ASSERT_TRUE(fail_points::arm("part.write=sleep:2000"));
  const auto handle = run.save({.step = 1, .tensors = state.table()});
  ASSERT_TRUE(handle.has_value());
  const Status refused = run.prewarm({.tensors = state.table()});
  fail_points::disarm();
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kBusy);
  EXPECT_TRUE((*handle)->wait(Level::kDurable, kDeadline));
}

TEST_F(EngineTest, AnnotationsThatNoHeaderTakesAreTheCallersMistake) {
  Checkpointer run = open();
  const State state = state_at(1);
  const auto refused = run.save(
      {.step = 1, .tensors = state.table(), .tags = {{"why", std::string(30'000'000, 'y')}}});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kInvalidArgument);
  save_durably(run, 2);
}

TEST_F(EngineTest, PrewarmRefusesWhatSaveWould) {
  Checkpointer run = open();
  const State state = state_at(1);
  TensorTable table = state.table();
  table[1].spec.key = table[0].spec.key;
  EXPECT_EQ(run.prewarm({.tensors = table}).error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(run.prewarm({.objects = "["}).error().code(), ErrorCode::kEncode);
  ASSERT_TRUE(run.close());
  EXPECT_EQ(run.prewarm({.tensors = state.table()}).error().code(), ErrorCode::kUnsupported);
}

TEST_F(EngineTest, TheCallerMayChangeItsStateOnceSaveReturned) {
  Checkpointer run = open();
  State state = state_at(5);
  const auto handle = run.save({.step = 5, .tensors = state.table()});
  ASSERT_TRUE(handle.has_value());
  EXPECT_TRUE((*handle)->status().captured);
  state.fill(99);
  ASSERT_TRUE((*handle)->wait(Level::kDurable, kDeadline).has_value());
  State restored;
  ASSERT_TRUE(restore_newest(run, restored.targets()).has_value());
  EXPECT_EQ(restored, state_at(5));
}

TEST_F(EngineTest, SavesAndRestoresAStateWithoutTensors) {
  Checkpointer run = open();
  const auto handle = run.save({.step = 1, .objects = R"({"lr":0.5})"});
  ASSERT_TRUE(handle.has_value());
  ASSERT_TRUE((*handle)->wait(Level::kDurable, kDeadline).has_value());
  const auto listed = list_checkpoints(run_dir());
  const auto opened = open_checkpoint(listed->front());
  ASSERT_TRUE(opened.has_value()) << opened.error().message();
  EXPECT_EQ(opened->objects(), R"({"lr":0.5})");
  EXPECT_TRUE(opened->tensors().empty());
}

TEST_F(EngineTest, FallsBackOneStepWhereTheNewestDoesNotVerify) {
  Checkpointer run = open();
  save_durably(run, 1);
  save_durably(run, 2);
  flip_one_bit(data_file_of(run.candidates()->front()), 500'000);
  State state;
  const auto report = restore_newest(run, state.targets());
  ASSERT_TRUE(report.has_value()) << report.error().message();
  EXPECT_EQ(report->restored.step, 1U);
  ASSERT_EQ(report->fell_back_from.size(), 1U);
  EXPECT_EQ(report->fell_back_from[0].second.code(), ErrorCode::kCorrupt);
  EXPECT_EQ(state, state_at(1));
}

TEST_F(EngineTest, SaysSoWhereTheCommitRecordItselfIsBad) {
  Checkpointer run = open();
  save_durably(run, 1);
  save_durably(run, 2);
  flip_one_bit(fs::path(run.candidates()->front().path) / "manifest.json", 100);
  State state;
  const auto report = restore_newest(run, state.targets());
  ASSERT_TRUE(report.has_value()) << report.error().message();
  EXPECT_EQ(report->restored.step, 1U);
  ASSERT_EQ(report->fell_back_from.size(), 1U);
  EXPECT_EQ(report->fell_back_from[0].first.step, 2U);
  EXPECT_EQ(report->fell_back_from[0].first.save_index, 2U);
  EXPECT_NE(report->fell_back_from[0].second.message().find("checksum"), std::string::npos);
  EXPECT_EQ(state, state_at(1));
}

TEST_F(EngineTest, AfterARollbackTheNewLineIsNewestThoughItsStepsAreSmaller) {
  {
    Checkpointer run = open();
    for (const std::uint64_t step : {100U, 150U}) save_durably(run, step);
  }
  Checkpointer run = open();
  const auto candidates = run.candidates();
  ASSERT_EQ(candidates->size(), 2U);
  ASSERT_TRUE(run.continue_from(candidates->at(1)).has_value());
  save_durably(run, 101);
  const auto listed = list_checkpoints(run_dir());
  EXPECT_EQ(steps_of(run_dir()), (std::vector<std::uint64_t>{101, 150, 100}));
  EXPECT_FALSE(listed->at(0).abandoned);
  EXPECT_TRUE(listed->at(1).abandoned);
  EXPECT_FALSE(listed->at(2).abandoned);
}

std::uint64_t newest_step(const fs::path& run) { return steps_of(run).front(); }

CheckpointInfo candidate(Checkpointer& run, std::uint64_t step) {
  const auto candidates = run.candidates();
  const auto found = std::ranges::find(*candidates, step, &CheckpointInfo::step);
  EXPECT_NE(found, candidates->end());
  return *found;
}

// Another run, with a checkpoint of that step, takes the place of the open one.
void replace_run(const fs::path& place, std::uint64_t step) {
  const fs::path other = place.parent_path() / "other";
  {
    auto run = Checkpointer::open(other, {});
    ASSERT_TRUE(run);
    save_durably(*run, step);
  }
  fs::rename(place, place.parent_path() / "away");
  fs::rename(other, place);
}

TEST_F(EngineTest, NothingIsSavedIntoARunThatTookThePlaceOfAnother) {
  Checkpointer run = open();
  save_durably(run, 1);
  ASSERT_TRUE(run.continue_from(candidate(run, 1)));
  save_durably(run, 2);  // of generation 2: the other run's first would be no obstacle
  replace_run(run_dir(), 5);
  const Status refused = save(run, 6).wait(Level::kDurable, kDeadline);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kFenced);
  EXPECT_NE(refused.error().message().find("another run"), std::string::npos);
  EXPECT_EQ(steps_of(run_dir()), std::vector<std::uint64_t>{5});
  State restored;
  ASSERT_TRUE(restore_newest(run, restored.targets()));
  EXPECT_EQ(restored, state_at(5));
  save_durably(run, 6);
}

TEST_F(EngineTest, ARunThatTookThePlaceOfAnotherIsRead) {
  Checkpointer run = open();
  save_durably(run, 1);
  replace_run(run_dir(), 5);
  const auto found = run.candidates();
  ASSERT_TRUE(found) << found.error().message();
  ASSERT_EQ(found->size(), 1U);
  EXPECT_EQ(found->front().step, 5U);
}

TEST_F(EngineTest, RestoringWhileAnotherProcessSavesDoesNotFenceIt) {
  Checkpointer trainer = open();
  save_durably(trainer, 1);
  fail_points::start_recording();
  ASSERT_TRUE(fail_points::arm("part.data_written=after:test.restored"));
  const SaveHandle in_flight = save(trainer, 2);
  State state;
  Checkpointer reader = open();
  for (int times = 0; times < 10; ++times) {
    ASSERT_TRUE(restore_newest(reader, state.targets()));
  }
  EXPECT_EQ(state, state_at(1));
  ASSERT_TRUE(fail_points::pass("test.restored"));
  EXPECT_TRUE(in_flight.wait(Level::kDurable, kDeadline));
  save_durably(trainer, 3);
}

TEST_F(EngineTest, WhatThisProcessMayNotOpenIsNoFaultOfTheCheckpoint) {
  EXPECT_FALSE(is_fault(Error(ErrorCode::kIo, "open", EACCES)));
  EXPECT_FALSE(is_fault(Error(ErrorCode::kIo, "open", EMFILE)));
  EXPECT_FALSE(is_fault(Error(ErrorCode::kGone, "open")));
  EXPECT_TRUE(is_fault(Error(ErrorCode::kIo, "read", EIO)));
  EXPECT_TRUE(is_fault(Error(ErrorCode::kCorrupt, "read")));
}

TEST_F(EngineTest, ARunIsWhereTheFileSystemSaysThatItsPathIs) {
  fs::create_directories(root_ / "elsewhere" / "deep");
  fs::create_directory_symlink(root_ / "elsewhere" / "deep", root_ / "link");
  const fs::path path = root_ / "link" / ".." / "run";
  {
    auto run = Checkpointer::open(path, {});
    ASSERT_TRUE(run);
    save_durably(*run, 1);
  }
  EXPECT_EQ(steps_of(path), std::vector<std::uint64_t>{1});
  EXPECT_EQ(steps_of(root_ / "elsewhere" / "run"), std::vector<std::uint64_t>{1});
}

// As batch systems set it. Saves that are small enough go on.
TEST_F(EngineTest, AFileSizeLimitFailsTheSaveAndNotTheProgram) {
  Checkpointer run = open();
  save_durably(run, 1);
  const auto limit = [](rlim_t bytes) {
    rlimit limits{};
    EXPECT_EQ(::getrlimit(RLIMIT_FSIZE, &limits), 0);
    limits.rlim_cur = std::min(bytes, limits.rlim_max);
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &limits), 0);
  };
  limit(100'000);
  const Status saved = save(run, 2).wait(Level::kDurable, kDeadline);
  limit(RLIM_INFINITY);
  ASSERT_FALSE(saved);
  EXPECT_EQ(saved.error().os_errno(), EFBIG) << saved.error().message();
  save_durably(run, 3);
}

TEST_F(EngineTest, RollingBackTwiceToTheSameStepAbandonsTheFirstTry) {
  Checkpointer run = open({.keep = {.last = 3}});
  save_durably(run, 100);
  for (const int round : {1, 2}) {
    ASSERT_TRUE(run.continue_from(candidate(run, 100)).has_value());
    save_durably(run, round == 1 ? 150 : 101);
    run.wait();
  }
  EXPECT_EQ(newest_step(run_dir()), 101U);
  EXPECT_EQ(steps_of(run_dir()), (std::vector<std::uint64_t>{101, 150, 100}));
  EXPECT_TRUE(list_checkpoints(run_dir())->at(1).abandoned);
}

TEST_F(EngineTest, RestoringTheSameStepAgainAfterARestartAbandonsWhatCameBetween) {
  {
    Checkpointer run = open();
    save_durably(run, 100);
  }
  Checkpointer run = open();
  ASSERT_TRUE(run.continue_from(candidate(run, 100)).has_value());
  save_durably(run, 150);
  ASSERT_TRUE(run.continue_from(candidate(run, 100)).has_value());
  save_durably(run, 110);
  EXPECT_EQ(newest_step(run_dir()), 110U);
}

TEST_F(EngineTest, AStepThatGoesBackIsNewestAllTheSame) {
  Checkpointer run = open({.keep = {.last = 1}});
  save_durably(run, 10);
  save_durably(run, 5);
  run.wait();
  EXPECT_EQ(steps_of(run_dir()), std::vector<std::uint64_t>{5});
}

TEST_F(EngineTest, LookingAtCandidatesDoesNotAbandonOnesOwnSaves) {
  Checkpointer run = open();
  save_durably(run, 1);
  ASSERT_TRUE(run.continue_from(candidate(run, 1)).has_value());
  save_durably(run, 2);
  save_durably(run, 3);
  fs::create_directory(run_dir() / "step-000000000009-00000000000000aa");
  EXPECT_EQ(run.candidates()->size(), 3U);
  save_durably(run, 4);
  const auto listed = list_checkpoints(run_dir());
  ASSERT_EQ(listed->size(), 4U);
  for (const CheckpointInfo& info : *listed) EXPECT_FALSE(info.abandoned) << info.step;
}

TEST_F(EngineTest, ContinuingWhileASaveIsInFlightDoesNotFenceIt) {
  Checkpointer run = open();
  save_durably(run, 1);
  const CheckpointInfo first = candidate(run, 1);
  ASSERT_TRUE(fail_points::arm("part.data_written=sleep:200@1").has_value());
  const SaveHandle second = save(run, 2);
  ASSERT_TRUE(run.continue_from(first).has_value());
  const SaveHandle third = save(run, 3);
  EXPECT_TRUE(second.wait(Level::kDurable, kDeadline).has_value());
  EXPECT_TRUE(third.wait(Level::kDurable, kDeadline).has_value());
}

TEST_F(EngineTest, PrewarmingWhileASaveIsInFlightDoesNotFenceIt) {
  Checkpointer run = open();
  save_durably(run, 1);
  const CheckpointInfo first = candidate(run, 1);
  ASSERT_TRUE(fail_points::arm("commit.parts_checked=sleep:200@1").has_value());
  const SaveHandle second = save(run, 2);
  ASSERT_TRUE(run.continue_from(first).has_value());
  const State state = state_at(3);
  ASSERT_TRUE(run.prewarm({.tensors = state.table()}));
  EXPECT_TRUE(second.wait(Level::kDurable, kDeadline).has_value());
}

TEST_F(EngineTest, AFencedWriterDeletesNothingAndWritesNothing) {
  Checkpointer first = open({.keep = {.last = 1}});
  save_durably(first, 1);
  Checkpointer second = open();
  ASSERT_TRUE(second.continue_from(candidate(second, 1)).has_value());
  for (const std::uint64_t step : {2U, 3U}) save_durably(second, step);
  const auto entries_before = std::distance(fs::directory_iterator(run_dir()), {});
  const SaveHandle handle = save(first, 4);
  const Status fenced = handle.wait(Level::kDurable, kDeadline);
  EXPECT_EQ(handle.status().bytes_written, 0U);
  ASSERT_FALSE(fenced.has_value());
  EXPECT_EQ(fenced.error().code(), ErrorCode::kFenced);
  first.wait();
  EXPECT_EQ(steps_of(run_dir()), (std::vector<std::uint64_t>{3, 2, 1}));
  EXPECT_EQ(std::distance(fs::directory_iterator(run_dir()), {}), entries_before);
}

TEST_F(EngineTest, ARestoreLiftsAFence) {
  Checkpointer first = open();
  save_durably(first, 1);
  Checkpointer second = open();
  ASSERT_TRUE(second.continue_from(candidate(second, 1)).has_value());
  save_durably(second, 2);
  EXPECT_FALSE(save(first, 2).wait(Level::kDurable, kDeadline).has_value());
  ASSERT_TRUE(first.continue_from(candidate(first, 2)).has_value());
  save_durably(first, 3);
  EXPECT_EQ(newest_step(run_dir()), 3U);
}

TEST_F(EngineTest, OneAttemptThatCantBeDeletedDoesNotKeepTheOthers) {
  Checkpointer run = open({.keep = {.last = 1}});
  save_durably(run, 1);
  fs::create_directory(fs::path(candidate(run, 1).path) / "foreign");
  for (const std::uint64_t step : {2U, 3U, 4U}) save_durably(run, step);
  run.wait();
  EXPECT_EQ(steps_of(run_dir()), std::vector<std::uint64_t>{4});
}

TEST_F(EngineTest, AFailedCommitLeavesNoDebris) {
  Checkpointer run = open();
  save_durably(run, 1);
  const auto entries = std::distance(fs::directory_iterator(run_dir()), {});
  ASSERT_TRUE(fail_points::arm("commit.parts_checked=error").has_value());
  EXPECT_FALSE(save(run, 2).wait(Level::kDurable, kDeadline).has_value());
  run.wait();
  EXPECT_EQ(std::distance(fs::directory_iterator(run_dir()), {}), entries);
}

TEST_F(EngineTest, VeryLongTimeoutsAreNotOver) {
  Checkpointer run = open({.busy_wait_max = milliseconds::max()});
  const SaveHandle first = save(run, 1);
  EXPECT_TRUE(first.wait(Level::kDurable, milliseconds::max()).has_value());
  save_durably(run, 2);
}

TEST_F(EngineTest, RulesThatKeepNothingAreRefused) {
  EXPECT_FALSE(Checkpointer::open(run_dir(), {.keep = {.last = 0}}).has_value());
  const Keep::Best wordy = {.metric = std::string(65'537, 'x')};  // it would be in every claim
  const auto refused = Checkpointer::open(run_dir(), {.keep = {.best = wordy}});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message().find("65537 bytes"), std::string::npos);
  EXPECT_FALSE(Checkpointer::open(run_dir(), {.keep = {.every = 0}}).has_value());
  const Keep::Best none{.metric = "loss", .count = 0};
  EXPECT_FALSE(Checkpointer::open(run_dir(), {.keep = {.best = none}}).has_value());
}

TEST_F(EngineTest, KeepsTheLastOnesOnly) {
  Checkpointer run = open({.keep = {.last = 2}});
  for (std::uint64_t step = 1; step <= 5; ++step) save_durably(run, step);
  run.wait();
  EXPECT_EQ(steps_of(run_dir()), (std::vector<std::uint64_t>{5, 4}));
}

TEST_F(EngineTest, TheBestIsFoundByTheRulesOfThisProcessOrThoseThatTheRunRecords) {
  const Keep::Best by_loss{.metric = "loss", .better = Keep::Better::kMin};
  State state;
  {
    Checkpointer run = open({.keep = {.last = 3, .best = by_loss}});
    EXPECT_EQ(run.best().value(), std::nullopt) << "nothing is committed";
    const std::map<std::uint64_t, double> losses = {{1, 3.0}, {2, 1.0}, {3, 2.0}};
    for (const auto& [step, loss] : losses) {
      const auto handle =
          run.save({.step = step, .tensors = state.table(), .metrics = {{"loss", loss}}});
      ASSERT_TRUE((*handle)->wait(Level::kDurable, kDeadline).has_value());
    }
    EXPECT_EQ(run.best().value()->step, 2U);
    EXPECT_EQ(run.best({.better = Keep::Better::kMax}).value()->step, 1U);
  }
  EXPECT_EQ(recorded_keep(run_dir()).value()->best, by_loss);
  Checkpointer other = open();
  EXPECT_EQ(other.best().value()->step, 2U) << "by what the run's newest claim records";
  EXPECT_EQ(other.best({.metric = "acc"}).error().code(), ErrorCode::kNotFound);
  const auto by = parse_best("best:loss:max");
  EXPECT_EQ(other.best(*by).value()->step, 1U);
}

TEST_F(EngineTest, AFailedSaveIsInItsHandleAndTheNextOneWorks) {
  Checkpointer run = open();
  save_durably(run, 1);
  for (const char* point :
       {"part.write", "part.data_synced", "commit.sealed", "commit.manifest_written"}) {
    ASSERT_TRUE(fail_points::arm(std::string(point) + "=error:ENOSPC").has_value());
    const Status failed = save(run, 2).wait(Level::kDurable, kDeadline);
    ASSERT_FALSE(failed.has_value()) << point;
    EXPECT_EQ(failed.error().code(), ErrorCode::kNoSpace) << point;
    fail_points::disarm();
    run.wait();
    EXPECT_EQ(steps_of(run_dir()), std::vector<std::uint64_t>{1}) << point;
  }
  save_durably(run, 3);
  EXPECT_EQ(steps_of(run_dir()), (std::vector<std::uint64_t>{3, 1}));
}

TEST_F(EngineTest, ASecondWriterFencesTheFirst) {
  Checkpointer first = open();
  save_durably(first, 1);
  Checkpointer second = open();
  State state;
  ASSERT_TRUE(restore_newest(second, state.targets()).has_value());
  save_durably(second, 2);
  const Status fenced = save(first, 2).wait(Level::kDurable, kDeadline);
  ASSERT_FALSE(fenced.has_value());
  EXPECT_EQ(fenced.error().code(), ErrorCode::kFenced) << fenced.error().message();
  EXPECT_EQ(steps_of(run_dir()), (std::vector<std::uint64_t>{2, 1}));
}

TEST_F(EngineTest, RefusesABadRequestBeforeAnythingIsWritten) {
  Checkpointer run = open();
  const State state;
  TensorTable twice = state.table();
  twice[1].spec.key = "w";
  const auto duplicate = run.save({.step = 1, .tensors = twice});
  ASSERT_FALSE(duplicate.has_value());
  EXPECT_NE(duplicate.error().message().find("w"), std::string::npos);
  const auto broken = run.save({.step = 1, .objects = "{"});
  ASSERT_FALSE(broken.has_value());
  EXPECT_EQ(broken.error().code(), ErrorCode::kEncode);
  EXPECT_TRUE(steps_of(run_dir()).empty());
  save_durably(run, 1);
}

TEST_F(EngineTest, SkipsASaveWhileOneIsInFlightWhereAskedTo) {
  Checkpointer run = open({.on_busy = OnBusy::kSkip});
  ASSERT_TRUE(fail_points::arm("part.data_written=sleep:300").has_value());
  const SaveHandle first = save(run, 1);
  const State state;
  const auto second = run.save({.step = 2, .tensors = state.table()});
  ASSERT_TRUE(second.has_value());
  EXPECT_FALSE(second->has_value());
  EXPECT_TRUE(first.wait(Level::kDurable, kDeadline).has_value());
}

TEST_F(EngineTest, AForkedChildIsInert) {
  Checkpointer run = open();
  save_durably(run, 1);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto refused = run.save({.step = 2});
    const bool inert = !refused && refused.error().code() == ErrorCode::kUnsupported;
    {
      const Checkpointer destroyed = std::move(run);
    }
    ::_exit(inert ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  save_durably(run, 2);
}

TEST_F(EngineTest, AbortsWhatADeadPredecessorLeftAndRestoresTheStepBefore) {
  {
    Checkpointer run = open();
    save_durably(run, 1);
  }
  const pid_t child = ::fork();
  if (child == 0) {
    std::ignore = fail_points::arm("commit.seal_synced=kill");
    auto run = Checkpointer::open(run_dir(), {});
    State state;
    std::ignore = restore_newest(*run, state.targets());
    std::ignore = save(*run, 2).wait(Level::kDurable);
    ::_exit(1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  Checkpointer run = open();
  State state;
  const auto report = restore_newest(run, state.targets());
  ASSERT_TRUE(report.has_value()) << report.error().message();
  EXPECT_EQ(report->restored.step, 1U);
  EXPECT_EQ(state, state_at(1));
  save_durably(run, 2);
}

TEST_F(EngineTest, VerifyNamesFileBlockAndTensors) {
  Checkpointer run = open();
  save_durably(run, 1);
  const CheckpointInfo info = run.candidates()->front();
  EXPECT_TRUE(verify_checkpoint(info)->empty());
  flip_one_bit(data_file_of(info), 500'000);
  const auto faults = verify_checkpoint(info);
  ASSERT_TRUE(faults.has_value());
  ASSERT_EQ(faults->size(), 1U);
  EXPECT_EQ(faults->front().file, data_file_of(info).filename());
  EXPECT_EQ(faults->front().blocks.size(), 1U);
  EXPECT_EQ(faults->front().tensors, std::vector<std::string>{"w"});
}

TEST_F(EngineTest, RefusesADirectoryThatIsNoRun) {
  const auto listed = list_checkpoints(root_);
  ASSERT_FALSE(listed.has_value());
  EXPECT_EQ(listed.error().code(), ErrorCode::kNotFound);
  EXPECT_NE(listed.error().message().find(root_.string()), std::string::npos);
}

TEST_F(EngineTest, EveryWayOfWritingKeepsTheState) {
  const ScopeExit unset([] { ::unsetenv("DEEPFREEZE_IO"); });
  std::uint64_t step = 0;
  for (const char* mode : {"", "uring", "direct", "buffered"}) {
    SCOPED_TRACE(mode);
    ::setenv("DEEPFREEZE_IO", mode, 1);
    auto run = Checkpointer::open(run_dir(), {});
    if (!run && run.error().code() == ErrorCode::kUnsupported) continue;  // no io_uring here
    ASSERT_TRUE(run) << run.error().message();
    save_durably(*run, ++step);
    State state;
    ASSERT_TRUE(restore_newest(*run, state.targets()));
    EXPECT_EQ(state, state_at(step));
  }
  ::setenv("DEEPFREEZE_IO", "fast", 1);
  EXPECT_EQ(Checkpointer::open(run_dir(), {}).error().code(), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace deepfreeze

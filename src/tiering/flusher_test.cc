#include "tiering/flusher.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cerrno>
#include <thread>

#include "base/fail_point.h"
#include "manifest/commit.h"
#include "manifest/retention.h"
#include "tiering/flusher_fixture.h"
#include "tiering/merged_run.h"

namespace deepfreeze {
namespace {

// A tier that can be switched off: every call of its then fails.
class SwitchedVfs final : public PassingVfs {
 public:
  using PassingVfs::PassingVfs;
  SwitchedVfs(const SwitchedVfs&) = delete;
  SwitchedVfs& operator=(const SwitchedVfs&) = delete;
  ~SwitchedVfs() override {
    if (is_gone_ != nullptr) *is_gone_ = true;
  }
  void tell_end(std::atomic<bool>& is_gone) { is_gone_ = &is_gone; }
  void turn(bool on) { on_.store(on); }

  Result<std::unique_ptr<File>> create(std::string_view name, Access access) override {
    if (!on_ || !writes_) return down();
    return PassingVfs::create(name, access);
  }
  Status make_dir(std::string_view name) override {
    while (stuck_step_ != 0 && parse_attempt_dir_name(name)->step == stuck_step_) {
      std::this_thread::yield();
    }
    if (!on_) return down();
    return PassingVfs::make_dir(name);
  }
  Result<std::vector<DirEntry>> list(std::string_view name) override {
    hanging_ = hangs_.load();
    while (hangs_) std::this_thread::yield();
    if (!on_) return down();
    return PassingVfs::list(name);
  }
  Status sync_dir(std::string_view name) override {
    if (!syncs_) return down();
    return PassingVfs::sync_dir(name);
  }
  void turn_syncs(bool on) { syncs_.store(on); }
  // Reading goes on, writing does not.
  void turn_writes(bool on) { writes_.store(on); }
  void hang(bool on) { hangs_.store(on); }
  // The copy of this step does not begin.
  void stick_at(std::uint64_t step) { stuck_step_.store(step); }
  [[nodiscard]] bool is_hanging() const { return hanging_.load(); }

 private:
  static std::unexpected<Error> down() {
    return std::unexpected(Error(ErrorCode::kIo, "the tier is down", ESTALE));
  }
  std::atomic<bool> on_{true};
  std::atomic<bool> writes_{true};
  std::atomic<bool> syncs_{true};
  std::atomic<bool> hangs_{false};
  std::atomic<bool> hanging_{false};
  std::atomic<std::uint64_t> stuck_step_{0};
  std::atomic<bool>* is_gone_ = nullptr;
};

TEST_F(FlusherTest, WhatLiesOnTheNearTierArrivesNewestFirst) {
  for (std::uint64_t step = 1; step <= 3; ++step) save_awaited(step);
  const auto flusher = start(several(far(disk_)));
  EXPECT_EQ(text_of(flusher->drain(kDeadline)), "");
  EXPECT_EQ(arrived(), (Steps{3, 2, 1}));
  EXPECT_EQ(steps_on(disk_), (Steps{1, 2, 3}));
  EXPECT_EQ(broken_tier(disk_, run_.run_id()), "");
  const TierReport report = flusher->reports().front();
  EXPECT_EQ(report.committed, 3U);
  EXPECT_EQ(report.waiting, 0U);
  EXPECT_GT(report.bytes_total, 3 * kTestDataBytes);
}

TEST_F(FlusherTest, EachTierKeepsByItsOwnRules) {
  for (std::uint64_t step = 1; step <= 6; ++step) run_.save(step);
  SimDisk second;
  generation_ = 1;
  const auto flusher = start(several(far(disk_, {.last = 2, .every = {}, .best = {}}),
                                     far(second, {.last = 1, .every = {}, .best = {}}, 3)));
  EXPECT_EQ(text_of(flusher->drain(kDeadline)), "");
  EXPECT_EQ(steps_on(disk_), (Steps{5, 6}));
  EXPECT_EQ(steps_on(second), Steps{6});
  EXPECT_EQ(steps_on(near_).size(), 6U);
}

TEST_F(FlusherTest, ATierThatIsDownIsToldOnceAndCaughtUpLater) {
  SwitchedVfs switched(disk_);
  switched.turn(false);
  run_.save(1);
  const auto flusher = start(several(far(switched)));
  const Status waited = flusher->drain(std::chrono::milliseconds(400));
  ASSERT_FALSE(waited);
  EXPECT_EQ(waited.error().code(), ErrorCode::kTimeout);
  EXPECT_NE(waited.error().message().find("the tier is down"), std::string::npos);
  EXPECT_GT(flusher->reports().front().failures, 1U);
  EXPECT_EQ(logged("the tier is down"), 1U);
  EXPECT_EQ(flusher->held(read_run(near_).value()).size(), 1U);
  EXPECT_EQ(logged("the tier is down"), 1U);
  switched.turn(true);
  EXPECT_EQ(text_of(flusher->drain(kDeadline)), "");
  EXPECT_FALSE(flusher->reports().front().error);
  EXPECT_EQ(steps_on(disk_), Steps{1});
  // Only its own threads delete an attempt that the tier has, after a look.
  EXPECT_EQ(flusher->held(read_run(near_).value()).size(), 1U);
}

// A training that saves as fast as the tier copies never lets a pass come to its end.
TEST_F(FlusherTest, ATierThatIsBackIsNotFailingThoughStepsStillWait) {
  SwitchedVfs switched(disk_);
  switched.turn(false);
  const AttemptName oldest = name_of(run_.save(1));
  for (std::uint64_t step = 2; step <= 3; ++step) run_.save(step);
  const auto flusher = start(several(far(switched)));
  ASSERT_FALSE(flusher->drain(std::chrono::milliseconds(400)));
  EXPECT_FALSE(is_among(flusher->held(read_run(near_).value()), oldest));
  EXPECT_EQ(flusher->reports().front().waiting, 3U);
  ASSERT_TRUE(flusher->reports().front().error);
  switched.stick_at(2);
  switched.turn(true);
  while (flusher->reports().front().committed == 0) std::this_thread::yield();
  EXPECT_FALSE(flusher->reports().front().error);
  EXPECT_TRUE(is_among(flusher->held(read_run(near_).value()), oldest));
  switched.turn(false);
  switched.stick_at(0);
  ASSERT_FALSE(flusher->drain(std::chrono::milliseconds(400)));
  EXPECT_EQ(logged("the tier is down"), 2U);  // another outage
  switched.turn(true);
  EXPECT_EQ(text_of(flusher->drain(kDeadline)), "");
}

// The tier takes no directory for one step.
class PickyVfs final : public PassingVfs {
 public:
  using PassingVfs::PassingVfs;
  Status make_dir(std::string_view name) override {
    if (parse_attempt_dir_name(name)->step != refused_step) return PassingVfs::make_dir(name);
    return fail(ErrorCode::kIo, "it refuses the step");
  }
  std::atomic<std::uint64_t> refused_step{1};
};

TEST_F(FlusherTest, AStepThatFailsAgainAndAgainIsToldOnceThoughOthersArrive) {
  PickyVfs picky(disk_);
  const AttemptName refused = name_of(run_.save(1));
  const auto flusher = start(several(far(picky)));
  // A busy machine may need many tries.
  const auto drain_until = [&](const Steps& steps) {
    const auto until = Monotonic::now() + kDeadline;
    do {
      EXPECT_FALSE(flusher->drain(std::chrono::milliseconds(300)));
    } while (steps_on(disk_) != steps && Monotonic::now() < until);
    EXPECT_EQ(steps_on(disk_), steps);
  };
  Steps expected;
  for (std::uint64_t step = 2; step <= 4; ++step) {
    drain_until(expected);
    run_.save(step);
    expected.insert(expected.end(), step);
    flusher->wake();
  }
  drain_until(expected);
  EXPECT_TRUE(flusher->reports().front().error);
  EXPECT_EQ(logged("it refuses the step"), 1U);
  // Once it is deleted, the next failure is another one.
  ASSERT_TRUE(remove_attempt(near_, refused));
  picky.refused_step = 5;
  for (std::uint64_t step = 5; step <= 6; ++step) run_.save(step);
  drain_until({2, 3, 4, 6});
  EXPECT_EQ(logged("it refuses the step"), 2U);
}

TEST_F(FlusherTest, ADrainThatGivesUpDoesNotWaitForATierThatIsDown) {
  SwitchedVfs switched(disk_);
  switched.turn(false);
  run_.save(1);
  const auto flusher = start(several(far(switched)));
  const auto began = Monotonic::now();
  EXPECT_FALSE(flusher->drain(kDeadline, Flusher::OnFailure::kGiveUp));
  EXPECT_LT(Monotonic::now() - began, kDeadline / 2);
}

// The newest and those that the tier's rules name are held, so that space is bounded.
TEST_F(FlusherTest, SpaceForATierThatIsDownIsBoundedByItsRules) {
  SwitchedVfs switched(disk_);
  switched.turn(false);
  const auto flusher = start(several(far(switched, {.last = 2, .every = {}, .best = {}})));
  const Keep keep{.last = 1, .every = {}, .best = {}};
  for (std::uint64_t step = 1; step <= 9; ++step) {
    run_.save(step);
    flusher->wake();
    const auto held = [&](const RunListing& listing) { return flusher->held(listing); };
    const auto report = collect_garbage(near_, keep, {.held = held});
    ASSERT_TRUE(report);
    flusher->note_deleted(report->removed);
    EXPECT_LE(steps_on(near_).size(), 2U);
  }
  EXPECT_EQ(flusher->reports().front().left_out, 7U);
  switched.turn(true);
  EXPECT_EQ(text_of(flusher->drain(kDeadline)), "");
  EXPECT_EQ(steps_on(disk_), (Steps{8, 9}));
}

TEST_F(FlusherTest, SpaceIsHeldForATierThatIsDownUntilItHasCaughtUp) {
  near_keep_ = {.last = 1, .every = {}, .best = {}};
  SwitchedVfs switched(disk_);
  switched.turn(false);
  for (std::uint64_t step = 1; step <= 3; ++step) run_.save(step);
  const auto flusher = start(several(far(switched, {.last = {}, .every = 1, .best = {}})));
  EXPECT_FALSE(flusher->drain(kDeadline, Flusher::OnFailure::kGiveUp));
  EXPECT_TRUE(flusher->is_behind());
  Flusher::Space space = flusher->space(read_run(near_).value());
  EXPECT_EQ(space.tiers, std::vector<std::size_t>{0});
  EXPECT_EQ(space.use.held_bytes, 2 * space.use.newest_bytes);
  EXPECT_EQ(space.use.bytes, 3 * space.use.newest_bytes);
  EXPECT_FALSE(space.is_moving);
  EXPECT_NE(space.why.find("far (the tier is down)"), std::string::npos) << space.why;
  flusher->note_refused(space.tiers);
  EXPECT_EQ(flusher->reports().front().saves_refused, 1U);
  switched.turn(true);
  EXPECT_EQ(text_of(flusher->drain(kDeadline)), "");
  EXPECT_FALSE(flusher->is_behind());
  space = flusher->space(read_run(near_).value());
  EXPECT_EQ(space.use.held_bytes, 0U);
  EXPECT_TRUE(space.tiers.empty());
}

// A save may wait for the room.
TEST_F(FlusherTest, ACheckpointThatWasCopiedGoesBeforeTheNextIsCopied) {
  near_keep_ = {.last = 1, .every = {}, .best = {}};
  generation_ = 1;
  for (std::uint64_t step = 1; step <= 4; ++step) run_.save(step);
  SwitchedVfs switched(disk_);
  switched.stick_at(1);
  const auto flusher = start(several(far(switched)));
  const auto begin = Monotonic::now();
  while (steps_on(near_) != Steps({1, 4}) && Monotonic::now() - begin < kDeadline) {
    std::this_thread::yield();
  }
  EXPECT_EQ(steps_on(near_), (Steps{1, 4}));
  switched.stick_at(0);
  EXPECT_EQ(text_of(flusher->drain(kDeadline)), "");
  EXPECT_EQ(steps_on(near_), Steps{4});
}

TEST_F(FlusherTest, OneThatParityProtectsIsCopiedOnce) {
  near_keep_ = {.last = 1, .every = {}, .best = {}};
  generation_ = 1;
  run_.save(1);
  const auto listing = read_run(near_);
  ASSERT_TRUE(listing);
  const std::string dir = attempt_dir_name(listing->attempts.front().name);
  near_.plant(dir + "/" + parity_file_name(0, 2), "x");
  near_.plant(dir + "/" + std::string(kProtectedFile), "");
  run_.save(2);
  const auto flusher = start(several(far(disk_, {.last = 1, .every = {}, .best = {}})));
  EXPECT_EQ(text_of(flusher->drain(std::chrono::seconds(5))), "");
  EXPECT_EQ(flusher->reports().front().committed, 1U);
  EXPECT_EQ(steps_on(near_), (Steps{1, 2}));
}

// The parity of step 1 is being written.
TEST_F(FlusherTest, ACheckpointThatItsCallerHoldsStays) {
  near_keep_ = {.last = 1, .every = {}, .best = {}};
  generation_ = 1;
  for (std::uint64_t step = 1; step <= 3; ++step) run_.save(step);
  const auto listing = read_run(near_);
  ASSERT_TRUE(listing);
  held_.push_back(listing->attempts.front().name);
  ASSERT_EQ(held_.front().step, 1U);
  const auto flusher = start(several(far(disk_)));
  EXPECT_EQ(text_of(flusher->drain(kDeadline)), "");
  const auto begin = Monotonic::now();
  while (steps_on(near_).size() > 2 && Monotonic::now() - begin < kDeadline) {
    std::this_thread::yield();
  }
  EXPECT_EQ(steps_on(near_), (Steps{1, 3}));
}

TEST_F(FlusherTest, ACopyThatDoesNotVerifyHoldsUpNoOther) {
  run_.save(1);
  const Manifest bad = run_.save(2);
  ASSERT_TRUE(
      near_.flip_bit(path_in_run(bad, bad.files.front().name), 8 * (bad.files.front().bytes - 10)));
  const auto flusher = start(several(far(disk_)));
  const Status drained = flusher->drain(kDeadline);
  ASSERT_FALSE(drained);  // it is not there, and it is no success
  EXPECT_EQ(drained.error().code(), ErrorCode::kCorrupt) << drained.error().message();
  EXPECT_EQ(steps_on(disk_), Steps{1});
  EXPECT_EQ(logged("does not verify"), 1U);
}

// No data file can be opened, unless it is readable.
class UnreadableVfs final : public PassingVfs {
 public:
  UnreadableVfs(Vfs& disk, const std::atomic<bool>& is_readable)
      : PassingVfs(disk), is_readable_(is_readable) {}
  Result<std::unique_ptr<File>> open_read(std::string_view name, Access access) override {
    if (is_readable_ || !name.ends_with(".safetensors")) return disk_.open_read(name, access);
    return std::unexpected(Error(ErrorCode::kIo, "no data for now"));
  }

 private:
  const std::atomic<bool>& is_readable_;
};

TEST_F(FlusherTest, AStepIsNotLostWhileAnErrorOfOneOfItsCopiesMayPass) {
  const Manifest saved = run_.save(1);
  VfsTierStore store(disk_);
  ASSERT_EQ(text_of(flush_to(near_, saved, store)), "");
  const ManifestFile& file = saved.files.front();
  ASSERT_TRUE(disk_.flip_bit(path_in_run(saved, file.name), 8 * file.bytes - 1));
  SimDisk second;
  std::atomic<bool> is_readable{false};
  Flusher::Settings both = settings(several(far(disk_), far(second)));
  both.open_near = [&]() -> Result<std::unique_ptr<Vfs>> {
    return std::make_unique<UnreadableVfs>(near_, is_readable);
  };
  const auto flusher = Flusher::start(std::move(both));
  EXPECT_FALSE(flusher->drain(kDeadline, Flusher::OnFailure::kGiveUp));
  EXPECT_TRUE(flusher->reports().back().unreadable.empty());
  is_readable = true;
  EXPECT_EQ(text_of(flusher->drain(kDeadline)), "");
  EXPECT_EQ(steps_on(second), Steps{1});
}

TEST_F(FlusherTest, ATierThatIsContinuedElsewhereIsLeftAlone) {
  run_.save(1);
  const auto flusher = start(several(far(disk_)));
  ASSERT_EQ(text_of(flusher->drain(kDeadline)), "");
  ASSERT_TRUE(claim_generation(disk_, run_.run_id(), {}));
  run_.save(2);
  const Status drained = flusher->drain(kDeadline);
  ASSERT_FALSE(drained);
  EXPECT_EQ(drained.error().code(), ErrorCode::kFenced) << drained.error().message();
  EXPECT_EQ(steps_on(disk_), Steps{1});
  EXPECT_TRUE(flusher->reports().front().is_over);
}

TEST_F(FlusherTest, ARankThatDoesNotCommitOnlyLooks) {
  const Manifest saved = save_awaited(1);
  Flusher::Settings looks = settings(several(far(disk_)));
  looks.commits = false;
  const auto watcher = Flusher::start(std::move(looks));
  EXPECT_FALSE(watcher->drain(std::chrono::milliseconds(50)));
  EXPECT_TRUE(arrived().empty());
  VfsTierStore store(disk_);
  ASSERT_EQ(text_of(flush_to(near_, saved, store)), "");
  EXPECT_EQ(text_of(watcher->drain(kDeadline)), "");
  EXPECT_EQ(arrived(), Steps{1});
}

TEST_F(FlusherTest, ARankThatCannotLookSaysWhy) {
  SwitchedVfs switched(disk_);
  switched.turn(false);
  SimDisk strange;
  const NearRun another(strange);
  SimDisk damaged;
  damaged.plant(kRunFile, "damaged");
  const std::vector<std::pair<Vfs*, std::string>> cases = {
      {&switched, "is down"}, {&strange, "by another process"}, {&damaged, "deepfreeze.json"}};
  std::uint64_t step = 0;
  for (const auto& [tier, text] : cases) {
    save_awaited(++step);
    Flusher::Settings looks = settings(several(far(*tier)));
    looks.commits = false;
    const auto watcher = Flusher::start(std::move(looks));
    EXPECT_FALSE(watcher->drain(kDeadline, Flusher::OnFailure::kGiveUp));
    const std::optional<Error> error = watcher->reports().front().error;
    ASSERT_TRUE(error);
    EXPECT_TRUE(error->message().contains(text)) << error->message();
  }
  EXPECT_TRUE(arrived().empty());
}

TEST_F(FlusherTest, ATierThatIsNotInPlaceGetsNothing) {
  class Moved final : public PassingVfs {
   public:
    using PassingVfs::PassingVfs;
    Result<bool> is_in_place() override { return false; }
  } moved(disk_);
  run_.save(1);
  const auto flusher = start(several(far(moved)));
  EXPECT_FALSE(flusher->drain(kDeadline, Flusher::OnFailure::kGiveUp));
  const std::optional<Error> error = flusher->reports().front().error;
  ASSERT_TRUE(error);
  EXPECT_TRUE(error->message().contains("was moved or replaced")) << error->message();
  EXPECT_TRUE(disk_.list_all().empty());
}

// A name that its process did not sync is not durable, although others see it.
TEST_F(FlusherTest, WhatIsSeenOnTheTierIsSyncedBeforeAnybodyIsTold) {
  for (const bool commits : {true, false}) {
    SimDisk far_disk;
    const Manifest saved = save_awaited(commits ? 1 : 2);
    VfsTierStore store(far_disk);
    ASSERT_TRUE(fail_points::arm("flush.manifest_put=error"));
    EXPECT_FALSE(flush_to(near_, saved, store));
    fail_points::disarm();
    ASSERT_TRUE(has_committed(far_disk, saved));
    Flusher::Settings one = settings(several(far(far_disk)));
    one.commits = commits;
    EXPECT_EQ(text_of(Flusher::start(std::move(one))->drain(kDeadline)), "");
    far_disk.power_off();
    for (const auto& image : far_disk.crash_images(100, 0)) {
      EXPECT_TRUE(has_committed(*image, saved)) << image->label();
    }
  }
}

TEST_F(FlusherTest, NobodyIsToldOfANameThatCannotBeSynced) {
  const Manifest saved = save_awaited(1);
  VfsTierStore store(disk_);
  ASSERT_TRUE(fail_points::arm("flush.manifest_put=error"));
  EXPECT_FALSE(flush_to(near_, saved, store));
  fail_points::disarm();
  SwitchedVfs switched(disk_);
  switched.turn_syncs(false);
  const auto flusher = start(several(far(switched)));
  EXPECT_FALSE(flusher->drain(kDeadline, Flusher::OnFailure::kGiveUp));
  EXPECT_TRUE(arrived().empty());
  switched.turn_syncs(true);
  EXPECT_EQ(text_of(flusher->drain(kDeadline)), "");
  EXPECT_EQ(arrived(), Steps{1});
}

TEST_F(FlusherTest, NothingIsDeletedBeforeThisProcessHasSaved) {
  for (std::uint64_t step = 1; step <= 4; ++step) run_.save(step);
  {
    const auto keeps_all = start(several(far(disk_)));
    ASSERT_EQ(text_of(keeps_all->drain(kDeadline)), "");
    keeps_all->stop();
  }
  near_keep_ = {.last = 1, .every = {}, .best = {}};
  const auto flusher = start(several(far(disk_, {.last = 1, .every = {}, .best = {}})));
  ASSERT_EQ(text_of(flusher->drain(kDeadline)), "");
  EXPECT_EQ(steps_on(disk_).size(), 4U);
  EXPECT_EQ(steps_on(near_).size(), 4U);
  generation_ = 1;
  ASSERT_EQ(text_of(flusher->drain(kDeadline)), "");
  EXPECT_EQ(steps_on(disk_), Steps{4});
  EXPECT_EQ(steps_on(near_), Steps{4});
}

TEST_F(FlusherTest, AFencedProcessDeletesNothing) {
  Manifest newest;
  for (std::uint64_t step = 1; step <= 3; ++step) newest = run_.save(step);
  near_keep_ = {.last = 1, .every = {}, .best = {}};
  generation_ = 1;
  run_.claim(newest.point);  // another process goes on with this line
  const auto flusher = start(several(far(disk_, {.last = 1, .every = {}, .best = {}})));
  ASSERT_EQ(text_of(flusher->drain(kDeadline)), "");
  EXPECT_EQ(steps_on(near_).size(), 3U);
  generation_ = 2;  // it is this one
  ASSERT_EQ(text_of(flusher->drain(kDeadline)), "");
  EXPECT_EQ(steps_on(near_), Steps{3});
}

// The copy on the tier goes between the listing and the deletion that relies on it.
TEST_F(FlusherTest, TheNearCopyStaysIfTheFarOneIsGone) {
  const Manifest first = run_.save(1);
  {
    const auto flusher = start(several(far(disk_)));
    ASSERT_EQ(text_of(flusher->drain(kDeadline)), "");
  }
  save_awaited(2);
  near_keep_ = {.last = 1, .every = {}, .best = {}};
  generation_ = 1;
  std::atomic<bool> is_gone = false;
  Flusher::Settings one = settings(several(far(disk_)));
  one.tell = [&, tell = one.tell](const AttemptName& name, std::size_t tier, Flusher::Fate fate,
                                  std::string_view why) {
    tell(name, tier, fate, why);
    EXPECT_TRUE(remove_attempt(disk_, name_of(first)));
    is_gone = true;
  };
  const auto flusher = Flusher::start(std::move(one));
  // A drain before that would begin a new round, whose deletion comes before the copy goes.
  while (!is_gone) std::this_thread::yield();
  ASSERT_EQ(text_of(flusher->drain(kDeadline)), "");
  EXPECT_TRUE(has_committed(near_, first) || has_committed(disk_, first));
}

// A store may carry a write of the manifest out after the copy was deleted.
TEST_F(FlusherTest, TheNearCopyStaysIfTheFarOneHasNoFiles) {
  const Manifest first = run_.save(1);
  {
    const auto flusher = start(several(far(disk_)));
    ASSERT_EQ(text_of(flusher->drain(kDeadline)), "");
  }
  ASSERT_TRUE(disk_.remove_file(path_in_run(first, first.files[0].name)));
  run_.save(2);
  near_keep_ = {.last = 1, .every = {}, .best = {}};
  generation_ = 1;
  const auto flusher = start(several(far(disk_)));
  ASSERT_EQ(text_of(flusher->drain(kDeadline)), "");
  EXPECT_EQ(steps_on(near_), (Steps{1, 2}));
}

// A thread that is no thread of the flusher's has not looked at the tier.
TEST_F(FlusherTest, OnlyItsOwnThreadsDeleteWhatATierHas) {
  run_.save(1);
  run_.save(2);
  const auto flusher = start(several(far(disk_)));
  ASSERT_EQ(text_of(flusher->drain(kDeadline)), "");
  EXPECT_EQ(flusher->held(read_run(near_).value()).size(), 2U);
}

TEST_F(FlusherTest, TheLastTierIsNotFencedByAClaimThatTheOneBeforeItLacks) {
  run_.save(1);
  SimDisk second;
  {
    const auto both = start(several(far(disk_), far(second)));
    ASSERT_EQ(text_of(both->drain(kDeadline)), "");
    both->stop();
  }
  ASSERT_TRUE(remove_attempt(second, read_run(near_)->attempts[0].name));
  ASSERT_TRUE(remove_attempt(near_, read_run(near_)->attempts[0].name));
  run_.claim({});
  SwitchedVfs switched(disk_);  // it can be read, but takes no new claim
  switched.turn_writes(false);
  const auto flusher = start(several(far(switched), far(second)));
  EXPECT_FALSE(flusher->drain(std::chrono::milliseconds(500)));
  EXPECT_FALSE(flusher->reports()[1].is_over);
}

TEST_F(FlusherTest, AnAttemptThatIsBeingCopiedIsHeld) {
  const Manifest first = run_.save(1);
  FarTier slow = far(disk_, {.last = 1, .every = {}, .best = {}});
  slow.bytes_per_second = 1;
  const auto flusher = start(several(std::move(slow)));
  while (!flusher->reports()[0].copying) std::this_thread::yield();
  run_.save(2);
  EXPECT_TRUE(is_among(flusher->held(read_run(near_).value()), name_of(first)));
}

TEST_F(FlusherTest, ATierThatIsOverHoldsNothingAndTellsThoseWhoWait) {
  const auto flusher = start(several(far(disk_)));
  run_.save(1);
  ASSERT_EQ(text_of(flusher->drain(kDeadline)), "");
  ASSERT_TRUE(claim_generation(disk_, run_.run_id(), {}));
  save_awaited(2);
  EXPECT_FALSE(flusher->drain(kDeadline));
  EXPECT_TRUE(flusher->held(read_run(near_).value()).empty());
  while (left_out().empty()) std::this_thread::yield();
  EXPECT_EQ(left_out(), Steps{2});
}

// Another flusher was faster, and the nearer copy has gone since: the far one stays.
TEST_F(FlusherTest, AFlushThatComesLateDeletesNoCommittedCopy) {
  const Manifest saved = run_.save(1);
  run_.save(2);
  VfsTierStore store(disk_);
  ASSERT_EQ(text_of(flush_to(near_, saved, store)), "");
  ASSERT_TRUE(remove_attempt(near_, name_of(saved)));
  RateLimit unlimited(0);
  const std::atomic<bool> never{false};
  const Status late =
      flush_attempt(near_, saved, store, {.rate = unlimited, .stop = never}, &near_);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code(), ErrorCode::kGone);
  EXPECT_TRUE(has_committed(disk_, saved));
  EXPECT_EQ(broken_tier(disk_, run_.run_id()), "");
}

// Notes the niceness of the threads that use it.
class NiceVfs final : public PassingVfs {
 public:
  using PassingVfs::PassingVfs;
  Result<std::vector<DirEntry>> list(std::string_view name) override {
    nice = ::getpriority(PRIO_PROCESS, 0);
    return PassingVfs::list(name);
  }
  std::atomic<int> nice{0};
};

TEST_F(FlusherTest, TrainingGoesFirst) {
  NiceVfs tier(disk_);
  const int own = ::getpriority(PRIO_PROCESS, 0);
  run_.save(1);
  const auto flusher = start(several(far(tier)));
  ASSERT_EQ(text_of(flusher->drain(kDeadline)), "");
  EXPECT_EQ(tier.nice.load(), std::max(own, 10));
  EXPECT_EQ(::getpriority(PRIO_PROCESS, 0), own);
}

TEST_F(FlusherTest, ATierThatIsOverIsLookedAtAgainAfterAClaim) {
  const auto flusher = start(several(far(disk_)));
  run_.save(1);
  ASSERT_EQ(text_of(flusher->drain(kDeadline)), "");
  const GenerationRecord other = claim_generation(disk_, run_.run_id(), {}).value();
  save_awaited(2);
  EXPECT_FALSE(flusher->drain(kDeadline));
  save_awaited(3);  // later ones are told, too
  EXPECT_FALSE(flusher->drain(kDeadline));
  while (left_out().size() < 2) std::this_thread::yield();
  ASSERT_TRUE(adopt_history(near_, disk_));  // as a restore does
  run_.claim({});
  EXPECT_GT(read_run(near_)->claims.back().generation, other.generation);
  EXPECT_EQ(text_of(flusher->drain(kDeadline)), "");
  EXPECT_FALSE(flusher->reports()[0].is_over);
}

// A full tier gets room by its own rules, although the copies fail.
TEST_F(FlusherTest, AFullTierIsTidied) {
  for (std::uint64_t step = 1; step <= 3; ++step) run_.save(step);
  generation_ = 1;
  {
    const auto all = start(several(far(disk_)));
    ASSERT_EQ(text_of(all->drain(kDeadline)), "");
  }
  for (std::uint64_t step = 4; step <= 5; ++step) run_.save(step);
  disk_.set_bytes_free(7000);  // for one more
  const auto flusher = start(several(far(disk_, {.last = 1, .every = {}, .best = {}})));
  EXPECT_EQ(text_of(flusher->drain(kDeadline)), "");
  EXPECT_EQ(steps_on(disk_), Steps{5});
}

// Deletes nothing, as a file system that was made read-only.
class KeepingVfs final : public PassingVfs {
 public:
  using PassingVfs::PassingVfs;
  Status rename_no_replace(std::string_view from, std::string_view to) override {
    if (keeps && to.ends_with(kDeletedManifestFile)) {
      return fail(ErrorCode::kIo, "nothing is deleted here");
    }
    return PassingVfs::rename_no_replace(from, to);
  }
  std::atomic<bool> keeps{true};
};

TEST_F(FlusherTest, ATierThatDeletesNothingIsToldOnce) {
  KeepingVfs keeping(disk_);
  generation_ = 1;
  for (std::uint64_t step = 1; step <= 2; ++step) {
    run_.save(step);
    ASSERT_EQ(text_of(start(several(far(disk_)))->drain(kDeadline)), "");
  }
  const auto flusher = start(several(far(keeping, {.last = 1, .every = {}, .best = {}})));
  for (int tries = 0; tries < 3; ++tries) ASSERT_EQ(text_of(flusher->drain(kDeadline)), "");
  EXPECT_EQ(logged("old checkpoints stay"), 1U);
  keeping.keeps = false;
  ASSERT_EQ(text_of(flusher->drain(kDeadline)), "");
  EXPECT_EQ(steps_on(disk_), Steps{2});
  keeping.keeps = true;
  run_.save(3);
  ASSERT_EQ(text_of(flusher->drain(kDeadline)), "");
  EXPECT_EQ(logged("old checkpoints stay"), 2U);  // anew
}

TEST_F(FlusherTest, AFirstTierThatDeletesNothingIsToldOnce) {
  KeepingVfs keeping(near_);
  near_keep_ = {.last = 1, .every = {}, .best = {}};
  generation_ = 1;
  for (std::uint64_t step = 1; step <= 2; ++step) run_.save(step);
  Flusher::Settings one = settings(several(far(disk_)));
  one.open_near = [&]() -> Result<std::unique_ptr<Vfs>> {
    return std::make_unique<PassingVfs>(static_cast<Vfs&>(keeping));  // and no copy of it
  };
  const auto flusher = Flusher::start(std::move(one));
  for (int tries = 0; tries < 3; ++tries) ASSERT_EQ(text_of(flusher->drain(kDeadline)), "");
  EXPECT_EQ(logged("old checkpoints stay"), 1U);
  keeping.keeps = false;
  ASSERT_EQ(text_of(flusher->drain(kDeadline)), "");
  EXPECT_EQ(steps_on(near_), Steps{2});
}

TEST_F(FlusherTest, WhatAFlushHasBegunAndNobodyWantsIsRemoved) {
  const Manifest first = run_.save(1);
  VfsTierStore store(disk_);
  ASSERT_TRUE(fail_points::arm("flush.settled=error"));
  EXPECT_FALSE(flush_to(near_, first, store));
  fail_points::disarm();
  run_.save(2);
  generation_ = 1;
  const auto flusher = start(several(far(disk_, {.last = 1, .every = {}, .best = {}})));
  ASSERT_EQ(text_of(flusher->drain(kDeadline)), "");
  EXPECT_EQ(read_run(disk_)->attempts.size(), 1U);
}

TEST_F(FlusherTest, AFailingTierWithoutRulesHoldsTheNewestAlone) {
  SwitchedVfs switched(disk_);
  switched.turn(false);
  for (std::uint64_t step = 1; step <= 5; ++step) run_.save(step);
  const auto flusher = start(several(far(switched)));
  EXPECT_FALSE(flusher->drain(kDeadline, Flusher::OnFailure::kGiveUp));
  const auto held = flusher->held(read_run(near_).value());
  ASSERT_EQ(held.size(), 1U);
  EXPECT_EQ(held[0].step, 5U);
}

TEST_F(FlusherTest, StepsThatItsRulesLeaveOutAreTold) {
  for (std::uint64_t step = 1; step <= 4; ++step) save_awaited(step);
  const auto flusher = start(several(far(disk_, {.last = 2, .every = {}, .best = {}})));
  ASSERT_EQ(text_of(flusher->drain(kDeadline)), "");
  EXPECT_EQ(arrived(), (Steps{4, 3}));
  EXPECT_EQ(left_out(), (Steps{1, 2}));
}

TEST_F(FlusherTest, StopEndsASlowCopyAtOnce) {
  run_.save(1);
  FarTier slow = far(disk_);
  slow.bytes_per_second = 1;
  const auto flusher = start(several(std::move(slow)));
  flusher->wake();
  const auto began = Monotonic::now();
  flusher->stop();
  EXPECT_LT(Monotonic::now() - began, kDeadline / 2);
  EXPECT_EQ(broken_tier(disk_, run_.run_id()), "");
}

// A file system that does not answer, as a hard mount whose server is away.
TEST_F(FlusherTest, AThreadThatHangsIsLeftBehind) {
  run_.save(1);
  std::atomic<bool> is_gone{false};
  auto owned = std::make_unique<SwitchedVfs>(disk_);
  SwitchedVfs& switched = *owned;
  switched.hang(true);
  switched.tell_end(is_gone);
  FarTier tier{.place = "far", .store = std::make_unique<VfsTierStore>(std::move(owned))};
  auto flusher = start(several(std::move(tier)));
  while (!switched.is_hanging()) std::this_thread::yield();
  flusher->stop(std::chrono::milliseconds(50));
  EXPECT_EQ(logged("does not answer"), 1U);
  flusher.reset();
  EXPECT_FALSE(is_gone);  // the thread still has it
  switched.hang(false);   // its server is back
  while (!is_gone) std::this_thread::yield();
}

}  // namespace
}  // namespace deepfreeze

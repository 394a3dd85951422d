#include "tiering/flusher.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "manifest/retention.h"
#include "support/passing_vfs.h"
#include "tiering/tiers_fixture.h"

namespace deepfreeze {
namespace {

constexpr std::chrono::seconds kDeadline{60};  // for waits that must not hang

// A tier that can be switched off: every call of its then fails.
class SwitchedVfs final : public PassingVfs {
 public:
  using PassingVfs::PassingVfs;
  void turn(bool on) { on_.store(on); }

  Result<std::unique_ptr<File>> create(std::string_view name, Access access) override {
    if (!on_) return down();
    return PassingVfs::create(name, access);
  }
  Status make_dir(std::string_view name) override {
    if (!on_) return down();
    return PassingVfs::make_dir(name);
  }
  Result<std::vector<DirEntry>> list(std::string_view name) override {
    if (!on_) return down();
    return PassingVfs::list(name);
  }

 private:
  static std::unexpected<Error> down() {
    return std::unexpected(Error(ErrorCode::kIo, "the tier is down", ESTALE));
  }
  std::atomic<bool> on_{true};
};

class FlusherTest : public testing::Test {
 protected:
  FlusherTest() {
    set_log_sink([this](std::string_view line) {
      const std::lock_guard lock(log_mutex_);
      log_.emplace_back(line);
    });
  }
  ~FlusherTest() override { set_log_sink({}); }

  FarTier far(Vfs& vfs, Keep keep = {}, std::optional<std::uint64_t> every = {}) {
    return {.place = "far",
            .store = std::make_unique<VfsTierStore>(vfs),
            .every = every,
            .keep = std::move(keep)};
  }
  std::unique_ptr<Flusher> start(std::vector<FarTier> tiers) {
    return std::make_unique<Flusher>(
        Flusher::Settings{.near = near_,
                          .tiers = std::move(tiers),
                          .on_committed = [this](const AttemptName& name, std::size_t) {
                            const std::lock_guard lock(log_mutex_);
                            order_.push_back(name.step);
                          }});
  }
  template <class... Tiers>
  std::vector<FarTier> several(Tiers... tiers) {
    std::vector<FarTier> all;
    (all.push_back(std::move(tiers)), ...);
    return all;
  }
  std::vector<std::uint64_t> order() {
    const std::lock_guard lock(log_mutex_);
    return order_;
  }
  std::size_t logged(std::string_view part) {
    const std::lock_guard lock(log_mutex_);
    return static_cast<std::size_t>(std::ranges::count_if(
        log_, [&](const std::string& line) { return line.find(part) != std::string::npos; }));
  }
  static std::vector<std::uint64_t> steps_on(Vfs& tier) {
    std::vector<std::uint64_t> steps;
    const RunListing listing = read_run(tier).value();
    for (const AttemptState& attempt : listing.attempts) {
      if (attempt.committed()) steps.push_back(attempt.name.step);
    }
    return steps;
  }

  SimDisk near_;
  SimDisk disk_;
  NearRun run_{near_};

 private:
  std::mutex log_mutex_;
  std::vector<std::string> log_;
  std::vector<std::uint64_t> order_;
};

using Steps = std::vector<std::uint64_t>;

TEST_F(FlusherTest, WhatLiesOnTheNearTierArrivesNewestFirst) {
  for (std::uint64_t step = 1; step <= 3; ++step) run_.save(step);
  const auto flusher = start(several(far(disk_)));
  EXPECT_EQ(text_of(flusher->drain(kDeadline)), "");
  EXPECT_EQ(order(), (Steps{3, 2, 1}));
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
  switched.turn(true);
  EXPECT_EQ(text_of(flusher->drain(kDeadline)), "");
  EXPECT_FALSE(flusher->reports().front().error);
  EXPECT_EQ(steps_on(disk_), Steps{1});
  EXPECT_TRUE(flusher->held(read_run(near_).value()).empty());
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
  EXPECT_EQ(order(), (Steps{9, 8}));
}

TEST_F(FlusherTest, ACopyThatDoesNotVerifyHoldsUpNoOther) {
  run_.save(1);
  const Manifest bad = run_.save(2);
  ASSERT_TRUE(
      near_.flip_bit(path_in_run(bad, bad.files.front().name), 8 * (bad.files.front().bytes - 10)));
  const auto flusher = start(several(far(disk_)));
  EXPECT_EQ(text_of(flusher->drain(kDeadline)), "");
  EXPECT_EQ(steps_on(disk_), Steps{1});
  EXPECT_EQ(logged("does not verify"), 1U);
}

TEST_F(FlusherTest, ABadCopyIsMendedFromTheNextTier) {
  const Manifest saved = run_.save(1, 2);
  const auto flusher = start(several(far(disk_)));
  ASSERT_EQ(text_of(flusher->drain(kDeadline)), "");
  for (const bool on_far : {false, true}) {
    SimDisk& disk = on_far ? disk_ : near_;
    ASSERT_TRUE(
        disk.flip_bit(path_in_run(saved, saved.files[1].name), 8 * (saved.files[1].bytes - 10)));
    ASSERT_NE(broken_tier(disk, run_.run_id()), "");
    flusher->mend({.manifest = saved, .file = saved.files[1], .bad = on_far ? 1U : 0U});
    EXPECT_EQ(text_of(flusher->drain(kDeadline)), "");
    EXPECT_EQ(broken_tier(disk, run_.run_id()), "");
  }
  EXPECT_EQ(logged("mended"), 2U);
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
  const Manifest saved = run_.save(1);
  std::atomic<bool> awaited{true};
  std::vector<FarTier> tiers = several(far(disk_));
  Flusher watcher({.near = near_,
                   .tiers = std::move(tiers),
                   .on_committed = [&](const AttemptName&, std::size_t) { awaited = false; },
                   .is_awaited = [&](std::size_t) { return awaited.load(); }});
  EXPECT_FALSE(watcher.drain(std::chrono::milliseconds(50)));
  VfsTierStore store(disk_);
  ASSERT_EQ(text_of(flush_to(near_, saved, store)), "");
  EXPECT_EQ(text_of(watcher.drain(kDeadline)), "");
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

}  // namespace
}  // namespace deepfreeze

// Options::bytes_max: saves while a tier is behind, over real directories.
#include "api/near_room.h"

#include <gtest/gtest.h>

#include <thread>

#include "api/checkpointer_fixture.h"
#include "support/passing_vfs.h"
#include "support/thread_ranks.h"
#include "tiering/tiers_fixture.h"

namespace deepfreeze {
namespace {

using Steps = std::vector<std::uint64_t>;

constexpr std::uint64_t kCheckpoint = 1'200'081;  // bytes, and a header

class NearRoomTest : public EngineTest {
 protected:
  [[nodiscard]] fs::path far() const { return root_ / "far"; }
  // The run keeps one checkpoint, the tier all.
  [[nodiscard]] Options limited(std::uint64_t bytes_max, OnBusy on_busy) const {
    Options options;
    options.keep = {.last = 1};
    options.tiers = {{.path = far().string(), .keep = {.every = 1}}};
    options.bytes_max = bytes_max;
    options.on_busy = on_busy;
    return options;
  }
  void take_tier_away() const { fs::rename(far(), root_ / "away"); }
  void bring_tier_back() const { fs::rename(root_ / "away", far()); }
  static void save_locally(Checkpointer& run, std::uint64_t step) {
    ASSERT_TRUE(save(run, step).wait(Level::kLocal, kDeadline));
  }
  static Result<std::optional<SaveHandle>> try_save(Checkpointer& run, std::uint64_t step) {
    const State state = state_at(step);
    return run.save({.step = step, .tensors = state.table(), .objects = R"({"step":1})"});
  }
  std::size_t told() {
    const std::lock_guard lock(warnings_mutex_);
    return static_cast<std::size_t>(std::ranges::count_if(warnings_, [](const std::string& line) {
      return line.find("saves are left out") != std::string::npos;
    }));
  }
  // The tier has the first step and goes away; then steps 2 and 3 wait for it.
  void fall_behind(Checkpointer& run) {
    ASSERT_TRUE(save(run, 1).wait(Level::kDurable, kDeadline));
    ASSERT_TRUE(run.drain(kDeadline));  // a pass that still looks at the tier could delete step 1
    take_tier_away();
    save_locally(run, 2);
    save_locally(run, 3);
  }
};

TEST_F(NearRoomTest, SavesAreSkippedWhileTheTierIsDownAndNothingIsDeletedForThem) {
  Checkpointer run = open(limited(3 * kCheckpoint + kCheckpoint / 2, OnBusy::kSkip));
  fall_behind(run);
  for (const std::uint64_t step : {4U, 5U}) {
    const auto skipped = try_save(run, step);
    ASSERT_TRUE(skipped) << skipped.error().message();
    EXPECT_FALSE(skipped->has_value());
  }
  EXPECT_EQ(told(), 1U);
  EXPECT_EQ(run.tiers()[0].saves_refused, 2U);
  EXPECT_EQ(steps_of(run_dir()), (Steps{3, 2, 1}));
  bring_tier_back();
  ASSERT_TRUE(run.drain(kDeadline));
  ASSERT_TRUE(save(run, 6).wait(Level::kDurable, kDeadline));
  ASSERT_TRUE(run.close());
  EXPECT_EQ(steps_of(far()), (Steps{6, 3, 2, 1}));
  EXPECT_EQ(steps_of(run_dir()), Steps{6});
}

TEST_F(NearRoomTest, ItIsSaidAgainOnceThereWasRoomInBetween) {
  Checkpointer run = open(limited(3 * kCheckpoint + kCheckpoint / 2, OnBusy::kSkip));
  fall_behind(run);
  ASSERT_FALSE(try_save(run, 4)->has_value());
  bring_tier_back();
  ASSERT_TRUE(run.drain(kDeadline));
  ASSERT_TRUE(save(run, 5).wait(Level::kDurable, kDeadline));
  take_tier_away();
  save_locally(run, 6);
  save_locally(run, 7);
  while (try_save(run, 8)->has_value()) run.wait();  // an older one may be gone by now
  EXPECT_EQ(told(), 2U);
}

// It may stay down for hours.
TEST_F(NearRoomTest, ABlockingSaveDoesNotWaitForATierThatIsDown) {
  Options options = limited(3 * kCheckpoint + kCheckpoint / 2, OnBusy::kBlock);
  options.busy_wait_max = kDeadline;
  Checkpointer run = open(options);
  fall_behind(run);
  while (!run.tiers()[0].error) std::this_thread::yield();
  const auto began = Monotonic::now();
  const auto refused = try_save(run, 4);
  EXPECT_LT(Monotonic::now() - began, kDeadline / 2);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kBusy);
  for (const std::string& part : {std::string("save step 4"), run_dir().string(), far().string(),
                                  std::string("bytes_max"), std::string("moved or replaced")}) {
    EXPECT_NE(refused.error().message().find(part), std::string::npos) << refused.error().message();
  }
  bring_tier_back();
}

TEST_F(NearRoomTest, ABlockingSaveWaitsForATierThatIsSlow) {
  Options options = limited(kCheckpoint, OnBusy::kBlock);  // none beside one that waits
  options.tiers[0].bytes_per_second = 8 * kCheckpoint;
  Checkpointer run = open(options);
  for (std::uint64_t step = 1; step <= 6; ++step) {
    save_locally(run, step);
    for (std::uint64_t older = 1; older + 1 < step; ++older) {
      const Steps there = steps_of(far());
      EXPECT_EQ(std::ranges::count(there, older), 1) << older << " at " << step;
    }
  }
  EXPECT_EQ(run.tiers()[0].saves_refused, 0U);
  ASSERT_TRUE(run.drain(kDeadline));
  EXPECT_EQ(steps_of(far()), (Steps{6, 5, 4, 3, 2, 1}));
}

// A process that has not saved deletes nothing, and yet must come to save.
TEST_F(NearRoomTest, AProcessThatStartsWithoutRoomSavesOnceTheTierHasAll) {
  {
    Options all;
    Checkpointer run = open(all);
    for (std::uint64_t step = 1; step <= 4; ++step) save_locally(run, step);
  }
  Checkpointer run = open(limited(kCheckpoint, OnBusy::kBlock));
  State state;
  ASSERT_TRUE(restore_newest(run, state.targets()));
  ASSERT_TRUE(save(run, 5).wait(Level::kDurable, kDeadline));
  EXPECT_EQ(steps_of(far()), (Steps{5, 4, 3, 2, 1}));
}

TEST_F(NearRoomTest, TheBoundDoesNotCountWhileNoTierWaits) {
  Options options = limited(1, OnBusy::kSkip);
  options.keep = {.last = 3};
  Checkpointer run = open(options);
  for (std::uint64_t step = 1; step <= 3; ++step) {
    ASSERT_TRUE(save(run, step).wait(Level::kDurable, kDeadline));
  }
  EXPECT_EQ(steps_of(run_dir()), (Steps{3, 2, 1}));
}

TEST_F(NearRoomTest, AllRanksSkipASaveForWhichRank0HasNoRoom) {
  ThreadRanks(2).run([&](std::uint32_t rank, const std::shared_ptr<RankGroup>& group) {
    Options options = limited(kCheckpoint, OnBusy::kSkip);
    options.ranks = group;
    options.drain_wait_max = milliseconds(0);
    options.tiers[0].bytes_per_second = 1;  // it never arrives
    Checkpointer run = open(options);
    save_locally(run, 1);
    save_locally(run, 2);
    const auto skipped = try_save(run, 3);
    ASSERT_TRUE(skipped);
    EXPECT_FALSE(skipped->has_value());
    if (rank == 0) {
      EXPECT_EQ(run.tiers()[0].saves_refused, 1U);
    }
  });
}

TEST_F(NearRoomTest, ABoundThatCouldNeverCountIsRefused) {
  Options no_tier = limited(1, OnBusy::kSkip);
  no_tier.tiers.clear();
  Options no_rule = limited(1, OnBusy::kSkip);
  no_rule.keep = {};
  for (const Options& options : {no_tier, no_rule, limited(0, OnBusy::kSkip)}) {
    const auto opened = Checkpointer::open(run_dir(), options);
    ASSERT_FALSE(opened);
    EXPECT_EQ(opened.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_EQ(opened.error().message().find("bytes_max"), 0U) << opened.error().message();
  }
}

// On a simulated disk, whose two checkpoints wait for a tier to which nothing comes.
class NearRoomAloneTest : public testing::Test {
 protected:
  NearRoomAloneTest() {
    set_log_sink([](std::string_view) {});
    run_.save(1);
    newest_ = run_.save(2);
    Flusher::Settings settings;
    settings.open_near = [this] { return std::make_unique<PassingVfs>(near_); };
    settings.near_keep = {.last = 1};
    settings.tiers.push_back({.place = "far",
                              .store = std::make_unique<VfsTierStore>(far_),
                              .keep = {.every = 1},
                              .bytes_per_second = 1});
    flusher_ = Flusher::start(std::move(settings));
  }
  ~NearRoomAloneTest() override { set_log_sink({}); }

  [[nodiscard]] std::uint64_t size() const { return newest_.files.front().bytes; }
  Status try_at_once(std::uint64_t bytes_max, std::uint64_t bytes,
                     const std::optional<SaveBytes>& in_flight = {}) {
    NearRoom room(bytes_max, flusher_);
    return room.await(near_, bytes, [&] { return in_flight; }, Monotonic::now());
  }

  SimDisk near_;
  SimDisk far_;
  NearRun run_{near_};
  Manifest newest_;
  std::shared_ptr<Flusher> flusher_;
};

TEST_F(NearRoomAloneTest, ASaveCountsWithTheNewestsBytesOrItsOwnIfTheyAreMore) {
  EXPECT_TRUE(try_at_once(3 * size(), 1));
  EXPECT_FALSE(try_at_once(3 * size() - 1, 1));
  EXPECT_TRUE(try_at_once(3 * size() + 1, size() + 1));
  EXPECT_FALSE(try_at_once(3 * size(), size() + 1));
}

TEST_F(NearRoomAloneTest, TheSaveBeforeCountsUntilItIsInTheListing) {
  const SaveBytes before = {.name = {3, 99}, .bytes = size()};
  EXPECT_TRUE(try_at_once(4 * size(), 1, before));
  EXPECT_FALSE(try_at_once(4 * size() - 1, 1, before));
  EXPECT_TRUE(try_at_once(3 * size(), 1, SaveBytes{.name = name_of(newest_), .bytes = size()}));
}

}  // namespace
}  // namespace deepfreeze

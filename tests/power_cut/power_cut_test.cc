// Power is cut on real file systems, at every fail point and at random times: what was called
// durable is there, whole, and so is all that is listed.
//
// DEEPFREEZE_POWER_CUTS is the number of cuts of each file system, DEEPFREEZE_POWER_CUT_SEED the
// seed of a failure that is to be seen again (as far as times can be).
#include <fcntl.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <random>

#include "base/fail_point.h"
#include "base/log.h"
#include "base/unique_fd.h"
#include "power_cut/loop_disk.h"
#include "power_cut/trainer.h"
#include "storage/sync_directory.h"
#include "support/code_of.h"
#include "support/state_of_step.h"

namespace deepfreeze {
namespace {

constexpr std::uint64_t kCutsQuick = 70;
constexpr std::uint32_t kTimerMillisecondsMax = 40;
constexpr std::uint32_t kFailPointMillisecondsMax = 400;
constexpr int kPassesMax = 8;  // of a fail point, until the trainer dies at it

std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

class PowerCut : public testing::TestWithParam<FileSystem> {
 protected:
  PowerCut() {
    set_log_sink([](std::string_view) {});
  }
  ~PowerCut() override { set_log_sink({}); }
  void SetUp() override {
    auto made = LoopDisk::make(GetParam());
    if (!made) {
      ASSERT_EQ(made.error().code(), ErrorCode::kUnsupported) << made.error().message();
      GTEST_SKIP() << "LEFT OUT: " << made.error().message();
    }
    disk_ = *std::move(made);
    ASSERT_TRUE(disk_->mount());
  }

  // The names that a life of saves passes.
  [[nodiscard]] std::vector<std::string> fail_points_of(const std::filesystem::path& run) {
    fail_points::start_recording();
    Options options;
    options.keep.last = 1;
    auto opened = Checkpointer::open(run, options);
    EXPECT_TRUE(opened.has_value());
    for (std::uint64_t step = 1; step <= 3; ++step) {
      const StateOfStep state(step);
      const auto handle = opened->save({.step = step, .tensors = state.table()});
      EXPECT_TRUE(handle.has_value() && (*handle)->wait(Level::kDurable).has_value());
    }
    EXPECT_TRUE(opened->close());
    std::vector<std::string> names = fail_points::recorded();
    fail_points::disarm();
    return names;
  }

  [[nodiscard]] std::filesystem::path run() const { return disk_->path() / "run"; }

  // Trains until the cut and recovers the file system.
  void live_through_a_cut() {
    const bool at_fail_point = random_() % 2 == 0;
    const std::string name = names_[random_() % names_.size()];
    const std::string fail_point = name + "=kill@" + std::to_string(1 + random_() % kPassesMax);
    Trainer trainer({.run = run(), .fail_point = at_fail_point ? fail_point : ""});
    trainer.wait_until_saving();
    const auto patience = at_fail_point
                              ? kFailPointMillisecondsMax
                              : static_cast<std::uint32_t>(random_() % kTimerMillisecondsMax);
    died_at_fail_point_ += trainer.wait_for_death(patience) ? 1 : 0;
    ASSERT_TRUE(disk_->cut_power(random_() % 2 == 0 ? Cut::kLogFlushed : Cut::kLogLost));
    trainer.kill();
    for (const std::uint64_t step : trainer.acknowledged()) {
      acknowledged_ = step;
      ++acknowledgements_;
    }
    ASSERT_TRUE(disk_->unmount());
    ASSERT_TRUE(disk_->mount());
  }

  // Whatever is listed verifies and is its step's state; the newest is no older than the last
  // that was acknowledged.
  void expect_all_is_well() {
    if (!std::filesystem::exists(run() / "deepfreeze.json") && acknowledged_ == 0) return;
    auto opened = Checkpointer::open(run(), {});
    ASSERT_TRUE(opened.has_value()) << opened.error().message();
    const auto found = opened->candidates();
    ASSERT_TRUE(found.has_value()) << found.error().message();
    for (const CheckpointInfo& info : *found) {
      EXPECT_EQ(info.fault, "");
      const auto checkpoint = open_checkpoint(info);
      ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message();
      EXPECT_EQ(StateOfStep(info.step).difference(*checkpoint).what, "") << "step " << info.step;
    }
    const std::uint64_t newest = found->empty() ? 0 : found->front().step;
    EXPECT_GE(newest, acknowledged_);
    acknowledged_ = newest;  // the next trainer goes on from there
  }

  std::unique_ptr<LoopDisk> disk_;
  std::mt19937_64 random_;
  std::vector<std::string> names_;
  std::uint64_t acknowledged_ = 0;  // the last step
  std::uint64_t acknowledgements_ = 0;
  std::uint64_t died_at_fail_point_ = 0;
};

TEST_P(PowerCut, LosesNothingThatWasAcknowledged) {
  const std::uint64_t seed = number_from("DEEPFREEZE_POWER_CUT_SEED", std::random_device()());
  const std::uint64_t cuts = number_from("DEEPFREEZE_POWER_CUTS", kCutsQuick);
  random_.seed(seed);
  names_ = fail_points_of(disk_->path() / "recorded");
  ASSERT_GT(names_.size(), 15U);
  for (std::uint64_t cut = 1; cut <= cuts; ++cut) {
    SCOPED_TRACE("cut " + std::to_string(cut) + ", seed " + std::to_string(seed));
    ASSERT_NO_FATAL_FAILURE(live_through_a_cut());
    ASSERT_NO_FATAL_FAILURE(expect_all_is_well());
    ASSERT_FALSE(HasFailure());  // the first one tells most
  }
  std::printf("%s: %llu cuts, %llu of them at fail points, %llu checkpoints acknowledged\n",
              GetParam().name, static_cast<unsigned long long>(cuts),
              static_cast<unsigned long long>(died_at_fail_point_),
              static_cast<unsigned long long>(acknowledgements_));
  EXPECT_GT(acknowledgements_, cuts / 2);
}

// The descriptor is from before: XFS calls the system's own fsync of it a success.
TEST_P(PowerCut, IsNoticedByASyncOfADirectory) {
  UniqueFd directory(::open(disk_->path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  std::ofstream(disk_->path() / "before") << "x";
  ASSERT_TRUE(sync_directory(directory.get(), "it"));
  std::filesystem::rename(disk_->path() / "before", disk_->path() / "after");
  ASSERT_TRUE(disk_->cut_power(Cut::kLogLost));
  EXPECT_EQ(code_of(sync_directory(directory.get(), "it")), ErrorCode::kIo);
  ASSERT_TRUE(directory.close());
  ASSERT_TRUE(disk_->unmount());
  ASSERT_TRUE(disk_->mount());
  EXPECT_NE(std::filesystem::exists(disk_->path() / "before"),
            std::filesystem::exists(disk_->path() / "after"));
}

INSTANTIATE_TEST_SUITE_P(FileSystems, PowerCut,
                         testing::Values(FileSystem{"ext4_ordered", "ext4", "data=ordered"},
                                         FileSystem{"ext4_writeback", "ext4", "data=writeback"},
                                         FileSystem{"xfs", "xfs", ""}),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace deepfreeze

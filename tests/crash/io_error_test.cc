// Every operation of every scenario fails once, with each error that a file system may give; every
// read likewise; and every read of a restore.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/try.h"
#include "crash/attempt_maker.h"
#include "crash/invariants.h"
#include "manifest/history.h"
#include "restore/snapshot.h"

namespace deepfreeze {
namespace {

constexpr std::size_t kImagesMax = 20;
constexpr std::uint64_t kSeed = 72;
constexpr std::array kErrors = {EIO, ENOSPC, EACCES, EDQUOT, EROFS, ESTALE, EMFILE, ENOMEM};

// The first three; with DEEPFREEZE_ALL_ERRORS in the environment all of them.
std::span<const int> errors() {
  const std::span<const int> all = kErrors;
  return std::getenv("DEEPFREEZE_ALL_ERRORS") == nullptr ? all.first(3) : all;
}

using Arm = void (SimDisk::*)(std::size_t index, int os_errno);

// A scenario in which one operation or one read fails.
class FailedOnce {
 public:
  FailedOnce(const Scenario& scenario, Arm arm, std::size_t index, int os_errno)
      : scenario_(scenario), index_(index), os_errno_(os_errno) {
    (disk_.*arm)(index, os_errno);
  }

  // Whether the scenario came to its end in spite of the error.
  bool run() {
    const bool survived = scenario_.run(life_).has_value();
    expect_promises_after_a_cut();
    if (life_.may_save()) {  // the process goes on
      const Status saved = life_.save(900);
      EXPECT_TRUE(saved.has_value()) << where() << saved.error().message();
    }
    auto broken = broken_invariant(disk_, life_.promises());
    if (!broken) broken = broken_future(disk_, life_.promises());
    EXPECT_FALSE(broken.has_value()) << where() << *broken;
    EXPECT_EQ(disk_.open_files(), 0U) << where();
    return survived;
  }

 private:
  void expect_promises_after_a_cut() {
    for (const auto& image : disk_.crash_images(kImagesMax, kSeed)) {
      const auto broken = broken_invariant(*image, life_.promises());
      EXPECT_FALSE(broken.has_value())
          << where() << "then cut, seed " << kSeed << ", " << image->label() << "\n  " << *broken;
    }
  }

  [[nodiscard]] std::string where() const {
    return fmt::format("{}, {} at {}\n  ", scenario_.name, std::strerror(os_errno_), index_);
  }

  const Scenario& scenario_;
  std::size_t index_;
  int os_errno_;
  SimDisk disk_;
  RunLife life_{disk_};
};

using IoError = EachScenario;  // it drops warnings: repairs are expected
TEST_P(IoError, NoAcknowledgedStepIsLostAndTheNextSaveWorks) {
  SimDisk disk;
  RunLife life(disk);
  ASSERT_TRUE(scenario().run(life).has_value());
  std::size_t survived = 0;
  for (std::size_t index = 0; index < disk.operation_count(); ++index) {
    for (const int os_errno : errors()) {
      if (FailedOnce(scenario(), &SimDisk::fail_at, index, os_errno).run()) ++survived;
    }
    ASSERT_FALSE(HasFailure());  // the first one tells most
  }
  std::printf("%zu failures of operations\n", disk.operation_count() * errors().size());
  EXPECT_EQ(survived, 0U) << "an error was passed over";
}

// A read that fails may be passed over where something else tells the same.
TEST_P(IoError, NoReadThatFailsLosesAnything) {
  SimDisk disk;
  RunLife life(disk);
  ASSERT_TRUE(scenario().run(life).has_value());
  for (std::size_t index = 0; index < disk.read_count(); ++index) {
    for (const int os_errno : errors()) {
      FailedOnce(scenario(), &SimDisk::fail_read_at, index, os_errno).run();
    }
    ASSERT_FALSE(HasFailure());
  }
  std::printf("%zu failures of reads\n", disk.read_count() * errors().size());
  EXPECT_GT(disk.read_count(), 20U);
}
INSTANTIATE_TEST_SUITE_P(Scenarios, IoError, testing::Range(std::size_t{0}, scenarios().size()),
                         scenario_name);

// The bytes of the newest checkpoint's first tensor, as a reader gets them.
Result<std::vector<std::byte>> restore_newest_step(SimDisk& disk) {
  DF_TRY(const RunListing listing, read_run(disk));
  const auto committed = newest_first(listing);
  if (committed.empty()) return fail(ErrorCode::kNotFound, "nothing is listed");
  DF_TRY(const auto snapshot, Snapshot::open(disk, committed.front()));
  std::vector<std::byte> found(kTestDataBytes);
  const ReadTarget target{.key = snapshot->tensors().front().key, .into = found};
  DF_TRY_VOID(snapshot->read(std::span(&target, 1), {.thread_count = 1}));
  return found;
}

TEST(RestoreError, AReadThatFailsIsAnErrorOrChangesNothing) {
  SimDisk disk;
  RunLife life(disk);
  ASSERT_TRUE(scenarios().front().run(life).has_value());
  const std::size_t begin = disk.clone()->read_count();
  const auto right = restore_newest_step(disk);
  ASSERT_TRUE(right.has_value()) << right.error().message();
  std::size_t failed = 0;
  const auto counting = disk.clone();
  ASSERT_EQ(restore_newest_step(*counting).value(), *right);
  for (std::size_t index = begin; index < counting->read_count(); ++index) {
    for (const int os_errno : errors()) {
      const auto image = disk.clone();
      image->fail_read_at(index, os_errno);
      const auto found = restore_newest_step(*image);
      EXPECT_TRUE(!found || *found == *right) << index << ": " << std::strerror(os_errno);
      failed += found ? 0 : 1;
      EXPECT_EQ(image->open_files(), 0U);
      EXPECT_EQ(restore_newest_step(*image).value(), *right);  // the next one works
    }
  }
  std::printf("%zu failures of a restore's reads\n", failed);
  EXPECT_GT(failed, errors().size());
}

}  // namespace
}  // namespace deepfreeze

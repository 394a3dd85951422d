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

namespace deepfreeze::io_error_test {
namespace {

constexpr std::size_t kImagesMax = 20;
constexpr std::uint64_t kSeed = 72;
constexpr std::array kErrors = {EIO, ENOSPC, EACCES, EDQUOT, EROFS, ESTALE, EMFILE, ENOMEM};

// The first three, each in its own trial, or (under a sanitizer) one of the three in turn; with
// DEEPFREEZE_ALL_ERRORS in the environment all of them.
std::span<const int> errors_at(std::size_t index) {
  const std::span<const int> all = kErrors;
  if (std::getenv("DEEPFREEZE_ALL_ERRORS") != nullptr) return all;
  const std::span<const int> quick = all.first(3);
  return DF_ERRORS_IN_TURN ? quick.subspan(index % quick.size(), 1) : quick;
}

// The part of the disk's error that the caller's error lacks; empty if operation, path, cause and
// code are all in it.
std::string dishonesty(const Error& told, const Error& injected) {
  // No space at the last sync says nothing of whether the checkpoint is there: no kNoSpace.
  const bool is_unknown = told.message().contains("outcome unknown: ");
  const ErrorCode code = is_unknown ? ErrorCode::kIo : injected.code();
  const bool is_whole = told.message().contains(injected.message());
  if (is_whole && told.code() == code && told.os_errno() == injected.os_errno()) return "";
  return fmt::format("[{}, errno {}] {}\n  of [{}, errno {}] {}", to_string(told.code()),
                     told.os_errno(), told.message(), to_string(injected.code()),
                     injected.os_errno(), injected.message());
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
    const Status ended = scenario_.run(life_);
    if (!ended) expect_honest(ended.error());
    expect_promises_after_a_cut();
    if (life_.may_save()) {  // the process goes on
      const Status saved = life_.save(900);
      EXPECT_TRUE(saved.has_value()) << where() << saved.error().message();
    }
    auto broken = broken_invariant(disk_, life_.promises());
    if (!broken) broken = broken_future(disk_, life_.promises());
    EXPECT_FALSE(broken.has_value()) << where() << *broken;
    EXPECT_EQ(disk_.open_files(), 0U) << where();
    return ended.has_value();
  }

 private:
  // The caller's error names operation and path, and carries the disk's own message.
  void expect_honest(const Error& told) const {
    if (told.message().starts_with(kScenarioIsOver)) return;
    const auto injected = disk_.injected();
    ASSERT_TRUE(injected.has_value()) << where() << told.message();
    EXPECT_EQ(dishonesty(told, *injected), "") << where();
    EXPECT_EQ(injected->os_errno(), os_errno_) << where();
  }

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

// It drops warnings: repairs are expected.
class IoError : public EachScenario {
 protected:
  static void TearDownTestSuite() {
    fmt::print("{} failures of operations, {} of reads\n", operations_, reads_);
    fmt::print("{} operations carried out and called failed, in {} a commit was found to stand\n",
               late_, survived_);
  }
  static inline std::size_t operations_ = 0;
  static inline std::size_t reads_ = 0;
  static inline std::size_t late_ = 0;
  static inline std::size_t survived_ = 0;
};

TEST_P(IoError, NoAcknowledgedStepIsLostAndTheNextSaveWorks) {
  SimDisk disk;
  RunLife life(disk);
  ASSERT_TRUE(scenario().run(life).has_value());
  std::size_t survived = 0;
  for (std::size_t index = 0; index < disk.operation_count(); ++index) {
    for (const int os_errno : errors_at(index)) {
      if (FailedOnce(scenario(), &SimDisk::fail_at, index, os_errno).run()) ++survived;
      ++operations_;
    }
    ASSERT_FALSE(HasFailure());  // the first one tells most
  }
  EXPECT_EQ(survived, 0U) << "an error was passed over";
}

bool is_outcome(const SimOperation& operation) {
  return operation.kind == SimOperationKind::kRename && operation.target.ends_with(kManifestFile);
}

// As a file server does that loses its answer. A commit that stands is found, and is one.
TEST_P(IoError, NothingIsLostByAnErrorOfWhatWasCarriedOut) {
  SimDisk disk;
  RunLife life(disk);
  ASSERT_TRUE(scenario().run(life).has_value());
  std::size_t survived = 0;
  for (const SimOperation& operation : disk.operations()) {
    for (const int os_errno : errors_at(operation.index)) {
      FailedOnce once(scenario(), &SimDisk::fail_after, operation.index, os_errno);
      ++late_;
      if (!once.run()) continue;
      ++survived;
      EXPECT_TRUE(is_outcome(operation)) << operation.index << ": an error was passed over";
    }
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GT(survived, 0U) << "a commit that stands was taken for none";
  survived_ += survived;
}

// A failed read may be skipped if something else tells the same.
TEST_P(IoError, NoReadThatFailsLosesAnything) {
  SimDisk disk;
  RunLife life(disk);
  ASSERT_TRUE(scenario().run(life).has_value());
  for (std::size_t index = 0; index < disk.read_count(); ++index) {
    for (const int os_errno : errors_at(index)) {
      FailedOnce(scenario(), &SimDisk::fail_read_at, index, os_errno).run();
      ++reads_;
    }
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GT(disk.read_count(), 20U);
}
INSTANTIATE_TEST_SUITE_P(Scenarios, IoError, testing::Range(std::size_t{0}, scenarios().size()),
                         scenario_name);

// The bytes of the newest checkpoint's first tensor, as a reader gets them.
Result<std::vector<std::byte>> restore_newest_step(SimDisk& disk) {
  DF_TRY(const RunListing listing, read_run(disk));
  const auto committed = newest_first(listing);
  if (committed.empty() && !listing.attempts.empty() && listing.attempts.front().fault) {
    return std::unexpected(*listing.attempts.front().fault);  // the error that a reader gets
  }
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
    for (const int os_errno : errors_at(index)) {
      const auto image = disk.clone();
      image->fail_read_at(index, os_errno);
      const auto found = restore_newest_step(*image);
      EXPECT_TRUE(!found || *found == *right) << index << ": " << std::strerror(os_errno);
      failed += found ? 0 : 1;
      const std::string hidden = found ? "" : dishonesty(found.error(), image->injected().value());
      EXPECT_EQ(hidden, "") << index;
      EXPECT_EQ(image->open_files(), 0U);
      EXPECT_EQ(restore_newest_step(*image).value(), *right);  // the next one works
    }
  }
  std::printf("%zu failures of a restore's reads\n", failed);
  EXPECT_GT(failed, 3U);
}

}  // namespace
}  // namespace deepfreeze::io_error_test

// Runs and attempts that are deleted under a writer, runs that may only be read, and closing after
// no save has succeeded.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <tuple>

#include "api/checkpointer_fixture.h"
#include "base/fail_point.h"
#include "manifest/run_directory.h"
#include "storage/posix_vfs.h"
#include "support/code_of.h"

namespace deepfreeze {
namespace {

// Although the worker may be making an attempt in it.
void remove_while_written(const fs::path& directory) {
  std::error_code failed;
  do fs::remove_all(directory, failed);
  while (failed == std::errc::directory_not_empty);
  ASSERT_FALSE(failed) << failed.message();
}

TEST_F(EngineTest, ARunThatIsDeletedDuringASaveFailsThatSaveAlone) {
  Checkpointer run = open({.profile = Profile::kLatency});
  save_durably(run, 1);
  State state = state_at(2);
  TensorTable table = state.table();
  for (Tensor& tensor : table) tensor.guard = 1;
  auto handle = run.save({.step = 2, .tensors = table, .confirm = true});
  ASSERT_TRUE(handle && *handle);
  ASSERT_TRUE((*handle)->wait_copied(kDeadline));
  remove_while_written(run_dir());
  (*handle)->confirm({});
  EXPECT_FALSE((*handle)->wait(Level::kDurable, kDeadline));
  for (const std::uint64_t step : {3U, 4U}) save_durably(run, step);
  EXPECT_EQ(steps_of(run_dir()), (std::vector<std::uint64_t>{4, 3}));
  EXPECT_TRUE(run.close());
}

TEST_F(EngineTest, ARunOfANodeThatIsMadeAgainHasDigits) {
  Checkpointer run = open({.near = Near::kNode});
  save_durably(run, 1);
  fs::remove_all(run_dir());
  save_durably(run, 2);
  const auto listing = read_run(*open_posix_vfs(run_dir()).value());
  ASSERT_TRUE(listing && listing->node && listing->node->record);
  EXPECT_EQ(listing->claims.back().record->node, listing->node->record->node);
}

TEST_F(EngineTest, AnAttemptThatIsDeletedDuringItsSaveFailsThatSaveAlone) {
  Checkpointer run = open({.profile = Profile::kLatency});
  save_durably(run, 1);
  const State state = state_at(2);
  TensorTable table = state.table();
  for (Tensor& tensor : table) tensor.guard = 1;
  auto handle = run.save({.step = 2, .tensors = table, .confirm = true});
  ASSERT_TRUE(handle && *handle);
  ASSERT_TRUE((*handle)->wait_copied(kDeadline));
  for (const auto& entry : fs::directory_iterator(run_dir())) {
    if (entry.path().filename().string().starts_with("step-000000000002")) {
      remove_while_written(entry.path());
    }
  }
  (*handle)->confirm({});
  std::ignore = (*handle)->wait(Level::kDurable, kDeadline);  // the worker may make it only now
  save_durably(run, 3);
  EXPECT_EQ(steps_of(run_dir()).front(), 3U);
  EXPECT_TRUE(warnings_.empty()) << warnings_.front();
}

std::set<fs::path> names_below(const fs::path& directory) {
  std::set<fs::path> names;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) names.insert(entry.path());
  return names;
}

TEST_F(EngineTest, AReadOnlyOneRestoresAndChangesNothing) {
  EXPECT_EQ(code_of(Checkpointer::open(run_dir(), {.read_only = true})), ErrorCode::kNotFound);
  EXPECT_FALSE(fs::exists(run_dir()));
  {
    Checkpointer run = open();
    save_durably(run, 1);
  }
  fs::remove(run_dir() / "deepfreeze.json");  // it is known from the others; nothing is repaired
  const auto files = names_below(run_dir());
  Checkpointer run = open({.read_only = true});
  State state;
  ASSERT_TRUE(restore_newest(run, state.targets()));
  EXPECT_EQ(state, state_at(1));
  const auto saved = run.save({.step = 2, .tensors = state.table()});
  ASSERT_FALSE(saved);
  EXPECT_EQ(saved.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_FALSE(run.prewarm({.step = 2, .tensors = state.table()}));
  EXPECT_TRUE(run.close());
  EXPECT_EQ(names_below(run_dir()), files);
}

TEST_F(EngineTest, ClosingTellsWhatNobodyWasToldWhereNoSaveSucceeded) {
  for (const bool waits : {false, true}) {
    for (const bool succeeds : {false, true}) {
      Checkpointer run = open();
      fail_points::arm("commit.sealed=error").value();
      const SaveHandle failed = save(run, 1);
      if (waits) {
        EXPECT_FALSE(failed.wait(Level::kDurable, kDeadline));
      }
      run.wait();
      fail_points::disarm();
      if (succeeds) save_durably(run, 2);
      const Status closed = run.close();
      EXPECT_EQ(closed.has_value(), waits || succeeds);
      if (!closed) {
        EXPECT_TRUE(closed.error().message().contains("no save has succeeded"));
      }
      EXPECT_TRUE(run.close()) << "once";
    }
  }
}

// A ring's write ends without a confirmation. A handle that goes afterwards has told nobody, and
// neither has close() itself, which waits for copies if the worker still has the job.
TEST_F(EngineTest, ClosingTellsAFailureThatCameBeforeTheConfirmation) {
  Checkpointer run = open({.profile = Profile::kLatency, .arena_bytes_max = 8 << 20});
  fail_points::arm("part.created=error").value();
  State state;
  state.weights.resize(3'000'000);
  TensorTable table = state.table();
  for (Tensor& tensor : table) tensor.guard = 1;
  {
    const auto handle = run.save({.step = 1, .tensors = table, .confirm = true});
    ASSERT_TRUE(handle && *handle);
    run.wait();
  }
  EXPECT_FALSE(run.close());
}

}  // namespace
}  // namespace deepfreeze

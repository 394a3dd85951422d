// Memory that is taken before a save needs it: by prewarm(), and in the background by expect().
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "api/checkpointer_fixture.h"
#include "base/named_threads.h"
#include "base/thread_sanitizer.h"
#include "deepfreeze/deepfreeze.h"

namespace deepfreeze {
namespace {

// The resident memory of this process, in bytes.
std::size_t resident_memory() {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages;
  return pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

// A state of one tensor.
struct Large {
  std::vector<std::byte> bytes = std::vector<std::byte>(64 << 20, std::byte{1});
  TensorTable table = {
      {.spec = {.key = "w", .dtype = DType::kU8, .shape = {bytes.size()}}, .data = bytes}};
};

TEST_F(EngineTest, PrewarmTakesTheMemoryThatTheFirstSaveNeeds) {
  Checkpointer run = open();
  const Large state;
  const std::size_t before = resident_memory();
  ASSERT_TRUE(run.prewarm({.tensors = state.table}));
  const std::size_t warm = resident_memory();
  EXPECT_GE(warm, before + state.bytes.size());
  ASSERT_TRUE((*run.save({.step = 1, .tensors = state.table}))->wait(Level::kDurable, kDeadline));
#if !DF_THREAD_SANITIZER  // its own notes on copied bytes need memory too
  EXPECT_LT(resident_memory(), warm + state.bytes.size() / 4);
#endif
}

TEST_F(EngineTest, MemoryIsTakenForASaveThatIsExpected) {
  Checkpointer run = open();
  const Large state;
  const std::size_t before = resident_memory();
  run.expect(state.bytes.size() / 2);
  run.expect(state.bytes.size());
  const auto deadline = std::chrono::steady_clock::now() + kDeadline;
  while (resident_memory() < before + state.bytes.size() &&
         std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const std::size_t warm = resident_memory();
  EXPECT_GE(warm, before + state.bytes.size());
  EXPECT_FALSE(fs::exists(run_dir() / "generation-00000001.json"));
  ASSERT_TRUE((*run.save({.step = 1, .tensors = state.table}))->wait(Level::kDurable, kDeadline));
#if !DF_THREAD_SANITIZER  // its own notes on copied bytes need memory too
  EXPECT_LT(resident_memory(), warm + state.bytes.size() / 4);
#endif
}

// Some of the memory is taken by then: the save takes the rest.
TEST_F(EngineTest, ASaveAndAnEndMayComeWhileMemoryIsTaken) {
  const Large state;
  for (std::uint64_t step = 1; step <= 8; ++step) {
    Checkpointer run = open();
    run.expect(3 * state.bytes.size());
    std::this_thread::sleep_for(std::chrono::milliseconds(step));
    if (step % 2 == 0) continue;
    const auto handle = run.save({.step = step, .tensors = state.table});
    run.expect(4 * state.bytes.size());  // a save has the memory: no effect
    ASSERT_TRUE((*handle)->wait(Level::kDurable, kDeadline));
  }
  Checkpointer run = open();
  std::vector<std::byte> found(state.bytes.size());
  const std::vector<RestoreTarget> targets = {{.key = "w", .into = found}};
  ASSERT_TRUE(restore_newest(run, targets));
  EXPECT_EQ(found, state.bytes);
}

// The thread is registering the memory at that moment, with an io_uring that goes as well: the
// sanitizers see it if it goes first.
TEST_F(EngineTest, AnEndMayComeWhileMemoryIsRegistered) {
  constexpr std::size_t kBytes = 128 << 20;
  for (int round = 0; round < 8; ++round) {
    Checkpointer run = open();
    const std::size_t before = resident_memory();
    run.expect(kBytes);
    const auto deadline = std::chrono::steady_clock::now() + kDeadline;
    while (resident_memory() < before + kBytes && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::yield();
    }
  }
}

// Hooks of updates call it, on any thread, also while another one saves.
TEST_F(EngineTest, ManyThreadsMayExpectASave) {
  Checkpointer run = open();
  const State state = state_at(1);
  const auto expect_more = [&run] {
    for (std::uint64_t size = 1; size <= 20; ++size) run.expect(size << 20);
  };
  const std::vector<std::jthread> threads = start_threads(4, "df-test", expect_more);
  for (std::uint64_t step = 1; step <= 5; ++step) save_durably(run, step);
}

TEST_F(EngineTest, MemoryThatWasExpectedIsGivenBackAtTheEnd) {
  Checkpointer run = open();
  run.expect(std::uint64_t{64} << 20);
  ASSERT_TRUE(run.close());
  const std::size_t before = resident_memory();
  run.expect(std::uint64_t{128} << 20);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_LT(resident_memory(), before + (24 << 20));
}

// More can't be taken for a ring, nor for a run that is only read.
TEST_F(EngineTest, NoMoreIsTakenThanMayBe) {
  {
    std::ignore = open();
  }
  Options ring;
  ring.arena_bytes_max = 8 << 20;
  Options read_only;
  read_only.read_only = true;
  for (const Options& each : {ring, read_only}) {
    Checkpointer run = open(each);
    const std::size_t before = resident_memory();
    run.expect(std::uint64_t{64} << 20);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_LT(resident_memory(), before + (24 << 20));
  }
}

TEST_F(EngineTest, MemoryThatIsRefusedInTheBackgroundIsLeftToTheSave) {
  Checkpointer run = open();
  run.expect(std::uint64_t{1} << 60);
  save_durably(run, 1);
}

}  // namespace
}  // namespace deepfreeze

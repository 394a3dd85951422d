#include <gtest/gtest.h>

#include <fstream>

#include <pthread.h>
#include <new>

#include <atomic>
#include <csignal>
#include <thread>

#include "base/bounded_queue.h"
#include "base/checked_math.h"
#include "base/fail_point.h"
#include "base/hex.h"
#include "base/log.h"
#include "base/mapped_memory.h"
#include "base/named_threads.h"
#include "base/try.h"

namespace deepfreeze {
namespace {

TEST(Hex, RoundTripsAndRefusesAnythingElse) {
  EXPECT_EQ(hex32(0xab), "000000ab");
  EXPECT_EQ(parse_hex64(hex64(0x9f2c41d07a3be856)), 0x9f2c41d07a3be856);
  EXPECT_EQ(parse_hex32("000000AB"), std::nullopt);
  EXPECT_EQ(parse_hex32("00ab"), std::nullopt);
  EXPECT_EQ(parse_hex32("-00000ab"), std::nullopt);
}

TEST(CheckedMath, SaysWhenItOverflows) {
  EXPECT_EQ(checked_add(1, 2), 3U);
  EXPECT_EQ(checked_add(~0ULL, 1), std::nullopt);
  EXPECT_EQ(checked_mul(1ULL << 40, 1ULL << 40), std::nullopt);
  EXPECT_EQ(ceil_div(65537, 65536), 2U);
  EXPECT_EQ(round_up(4096, 4096), 4096U);
}

TEST(BoundedQueue, HandsItemsOverInOrderAndEndsWhenClosed) {
  BoundedQueue<int> queue(2);
  std::jthread producer([&queue] {
    for (int i = 0; i < 1000; ++i) queue.push(i);
    queue.close();
  });
  int expected = 0;
  while (const auto item = queue.pop()) EXPECT_EQ(*item, expected++);
  EXPECT_EQ(expected, 1000);
  EXPECT_FALSE(queue.push(1));
}

Status guarded() {
  DF_FAIL_POINT("test.here");
  return {};
}

TEST(FailPoint, FailsAtTheChosenPassOnly) {
  ASSERT_TRUE(fail_points::arm("test.here=error:ENOSPC@2").has_value());
  EXPECT_TRUE(guarded().has_value());
  const Status second = guarded();
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code(), ErrorCode::kNoSpace);
  EXPECT_TRUE(guarded().has_value());
  fail_points::disarm();
}

TEST(FailPoint, RecordsNamesAndRefusesNonsense) {
  fail_points::start_recording();
  EXPECT_TRUE(guarded().has_value());
  EXPECT_EQ(fail_points::recorded(), std::vector<std::string>{"test.here"});
  fail_points::disarm();
  EXPECT_FALSE(fail_points::arm("test.here=explode").has_value());
  EXPECT_FALSE(fail_points::arm("test.here=after:").has_value());
  EXPECT_FALSE(fail_points::arm("test.here").has_value());
}

TEST(FailPoint, StopsUntilAnotherOneIsPassed) {
  fail_points::start_recording();
  ASSERT_TRUE(fail_points::arm("test.here=after:test.there").has_value());
  std::atomic<bool> there = false;
  const std::jthread other([&] {
    there = true;
    EXPECT_TRUE(fail_points::pass("test.there").has_value());
  });
  EXPECT_TRUE(guarded().has_value());
  EXPECT_TRUE(there);
  fail_points::disarm();
}

TEST(FailPointDeathTest, KillEndsTheProcessWithSigkill) {
  ASSERT_TRUE(fail_points::arm("test.here=kill").has_value());
  EXPECT_EXIT(std::ignore = guarded(), testing::KilledBySignal(SIGKILL), "");
  fail_points::disarm();
}

TEST(MappedMemory, IsPageAlignedZeroedAndMovable) {
  auto memory = MappedMemory::allocate(1 << 20);
  ASSERT_TRUE(memory.has_value());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory->bytes().data()) % 4096, 0U);
  MappedMemory moved = std::move(*memory);
  EXPECT_EQ(moved.bytes().size(), 1U << 20);
  EXPECT_EQ(moved.bytes().back(), std::byte{0});
  EXPECT_TRUE(memory->bytes().empty());
}

TEST(MappedMemory, RefusesWhatTheMachineCantGive) {
  const auto memory = MappedMemory::allocate(1ULL << 62);
  ASSERT_FALSE(memory.has_value());
  EXPECT_EQ(memory.error().code(), ErrorCode::kNoSpace);
}

std::size_t addresses_of_this_process() {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * 4096;
}

TEST(MappedMemory, ARefusedGrowthTakesNoAddresses) {
  MappedMemory memory;
  ASSERT_FALSE(memory.grow(std::size_t{1} << 60));
  ASSERT_TRUE(memory.grow(1));
  const std::size_t before = addresses_of_this_process();
  ASSERT_FALSE(memory.grow(std::size_t{1} << 60));
  ASSERT_FALSE(MappedMemory().grow(std::size_t{1} << 60));
  EXPECT_LT(addresses_of_this_process(), before + (1 << 30));
}

TEST(MappedMemory, GrowsWithItsContentsToTheBeginningOfAHugePage) {
  MappedMemory memory;
  for (const std::size_t bytes : {100UL, 5000UL, 100UL, 9UL << 20}) {
    const std::size_t before = memory.bytes().size();
    ASSERT_TRUE(memory.grow(bytes));
    EXPECT_EQ(memory.bytes().size(), std::max(bytes, before));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.bytes().data()) % (2 << 20), 0U);
    const auto is = [](std::byte value) { return [value](std::byte one) { return one == value; }; };
    EXPECT_TRUE(std::ranges::all_of(memory.bytes().first(before), is(std::byte{7})));
    EXPECT_TRUE(std::ranges::all_of(memory.bytes().subspan(before), is(std::byte{0})));
    std::ranges::fill(memory.bytes(), std::byte{7});
  }
  const Status refused = memory.grow(1ULL << 62);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kNoSpace);
  EXPECT_EQ(memory.bytes().size(), 9UL << 20);
  EXPECT_EQ(memory.bytes().back(), std::byte{7});
}

TEST(OwnThreads, HandleNoSignalButThoseOfTheirOwnMistakes) {
  sigset_t blocked;
  std::ignore =
      start_threads(1, "df-test", [&] { ::pthread_sigmask(SIG_BLOCK, nullptr, &blocked); });
  for (const int signal : {SIGTERM, SIGINT, SIGXFSZ, SIGCHLD}) {
    EXPECT_EQ(::sigismember(&blocked, signal), 1) << signal;
  }
  EXPECT_EQ(::sigismember(&blocked, SIGSEGV), 0);
}

// At the end of a thread there is nobody to catch a second one.
TEST(Log, AnExceptionIsToldUnlessMemoryIsRefusedForThatToo) {
  std::vector<std::string> lines;
  set_log_sink([&](std::string_view line) { lines.emplace_back(line); });
  log_exception("tidy up", std::bad_alloc());
  set_log_sink([](std::string_view) { throw std::bad_alloc(); });
  log_exception("tidy up", std::bad_alloc());
  set_log_sink({});
  EXPECT_EQ(lines, std::vector<std::string>{"deepfreeze: warning: tidy up: std::bad_alloc"});
}

TEST(Error, CarriesContextUpwards) {
  const Error inner(ErrorCode::kIo, "read block 3: Input/output error", 5);
  const Error outer = inner.within("restore step 7");
  EXPECT_EQ(outer.message(), "restore step 7: read block 3: Input/output error");
  EXPECT_EQ(outer.os_errno(), 5);
}

}  // namespace
}  // namespace deepfreeze

#include "arena/arena.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <stop_token>
#include <vector>

#include "base/thread_sanitizer.h"

namespace deepfreeze {
namespace {

void expect_all_resident(const Arena& arena) {
  std::vector<unsigned char> resident(arena.bytes().size() / 4096);
  ASSERT_EQ(::mincore(arena.bytes().data(), arena.bytes().size(), resident.data()), 0);
  EXPECT_TRUE(std::ranges::all_of(resident, [](unsigned char page) { return (page & 1) != 0; }));
}

TEST(Arena, ReservesWholeSlabsThatAreAllResident) {
  Arena arena;
  ASSERT_TRUE(arena.reserve(kArenaGrainBytes + 1));
  ASSERT_EQ(arena.bytes().size(), 2 * kArenaGrainBytes);
  expect_all_resident(arena);
}

TEST(Arena, KeepsItsMemoryWhereLessIsAskedFor) {
  Arena arena;
  ASSERT_TRUE(arena.reserve(2 * kArenaGrainBytes));
  const auto before = arena.bytes();
  std::ranges::fill(before, std::byte{7});
  ASSERT_TRUE(arena.reserve(100));
  ASSERT_TRUE(arena.reserve(0));
  EXPECT_EQ(arena.bytes().data(), before.data());
  EXPECT_EQ(arena.bytes().size(), before.size());
  EXPECT_EQ(arena.bytes().back(), std::byte{7});
}

TEST(Arena, GrowsOnDemand) {
  Arena arena;
  ASSERT_TRUE(arena.reserve(1));
  ASSERT_TRUE(arena.reserve(3 * kArenaGrainBytes));
  EXPECT_EQ(arena.bytes().size(), 3 * kArenaGrainBytes);
  expect_all_resident(arena);
}

TEST(Arena, StopsWithTheSlabsThatItHasAndGoesOnLater) {
  for (const auto kind : {Arena::Kind::kOwn, Arena::Kind::kShared}) {
    Arena arena(kind);
    ASSERT_TRUE(arena.reserve(kArenaGrainBytes));
    std::stop_source stop;
    stop.request_stop();
    ASSERT_TRUE(arena.reserve(4 * kArenaGrainBytes, stop.get_token()));
    EXPECT_LE(arena.bytes().size(), kArenaGrainBytes);
    ASSERT_TRUE(arena.reserve(3 * kArenaGrainBytes));
    EXPECT_EQ(arena.bytes().size(), 3 * kArenaGrainBytes);
    expect_all_resident(arena);
    EXPECT_EQ(arena.shared_fd() >= 0, kind == Arena::Kind::kShared);
  }
}

TEST(Arena, RefusedMemoryIsAnErrorAndTheNextReserveWorks) {
  Arena arena;
  ASSERT_TRUE(arena.reserve(1));
  for (const std::size_t bytes : {std::numeric_limits<std::size_t>::max(), std::size_t{1} << 60}) {
    const Status refused = arena.reserve(bytes);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), ErrorCode::kNoSpace) << refused.error().message();
    EXPECT_TRUE(bytes > std::size_t{1} << 60 || arena.bytes().empty());
  }
  ASSERT_TRUE(arena.reserve(1));
  EXPECT_EQ(arena.bytes().size(), kArenaGrainBytes);
}

// A guess that is refused in the background must not decide for the saves to come.
TEST(Arena, ARefusalOfWhatCouldBeStoppedKeepsTheKind) {
  Arena arena(Arena::Kind::kShared);
  const std::stop_source stop;
  EXPECT_FALSE(arena.reserve(std::size_t{1} << 62, stop.get_token()));
  ASSERT_TRUE(arena.reserve(1));
  EXPECT_GE(arena.shared_fd(), 0);
}

#if !DF_THREAD_SANITIZER  // which needs addresses of its own
// Growing keeps the old memory if there are addresses for both.
TEST(Arena, GrowsWithinALimitOfAddressesThatHasNoRoomForBoth) {
  constexpr std::size_t kLess = 64 << 20;
  constexpr std::size_t kMore = 96 << 20;
  Arena arena;
  ASSERT_TRUE(arena.reserve(kLess));
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_AS, &before), 0);
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlimit tight = {.rlim_cur = pages * 4096 + kMore, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &tight), 0);
  const Status grown = arena.reserve(kMore);
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &before), 0);
  EXPECT_TRUE(grown) << grown.error().message();
}
#endif

TEST(Arena, SharedMemoryIsThatOfTheDescriptor) {
  Arena arena(Arena::Kind::kShared);
  EXPECT_EQ(arena.shared_fd(), -1);
  ASSERT_TRUE(arena.reserve(1));
  ASSERT_TRUE(arena.reserve(kArenaGrainBytes + 1));
  ASSERT_EQ(arena.bytes().size(), 2 * kArenaGrainBytes);
  arena.bytes().back() = std::byte{9};
  const auto other = SharedMemory::map(UniqueFd(::dup(arena.shared_fd())));
  ASSERT_TRUE(other) << other.error().message();
  ASSERT_EQ(other->bytes().size(), arena.bytes().size());
  EXPECT_EQ(other->bytes().back(), std::byte{9});
}

TEST(Arena, RefusedSharedMemoryIsReplacedByItsOwn) {
  Arena arena(Arena::Kind::kShared);
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none = {.rlim_cur = 0, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);  // so that no memfd can be made
  const Status reserved = arena.reserve(1);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_TRUE(reserved);
  EXPECT_EQ(arena.bytes().size(), kArenaGrainBytes);
  EXPECT_EQ(arena.shared_fd(), -1);
}

}  // namespace
}  // namespace deepfreeze

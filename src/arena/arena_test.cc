#include "arena/arena.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <vector>

namespace deepfreeze {
namespace {

TEST(Arena, ReservesWholeSlabsThatAreAllResident) {
  Arena arena;
  ASSERT_TRUE(arena.reserve(kArenaGrainBytes + 1));
  ASSERT_EQ(arena.bytes().size(), 2 * kArenaGrainBytes);
  std::vector<unsigned char> resident(2 * kArenaGrainBytes / 4096);
  ASSERT_EQ(::mincore(arena.bytes().data(), arena.bytes().size(), resident.data()), 0);
  EXPECT_TRUE(std::ranges::all_of(resident, [](unsigned char page) { return (page & 1) != 0; }));
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
}

TEST(Arena, RefusedMemoryIsAnErrorAndTheNextReserveWorks) {
  Arena arena;
  ASSERT_TRUE(arena.reserve(1));
  for (const std::size_t bytes : {std::numeric_limits<std::size_t>::max(), std::size_t{1} << 60}) {
    const Status refused = arena.reserve(bytes);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), ErrorCode::kNoSpace) << refused.error().message();
  }
  ASSERT_TRUE(arena.reserve(1));
  EXPECT_EQ(arena.bytes().size(), kArenaGrainBytes);
}

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

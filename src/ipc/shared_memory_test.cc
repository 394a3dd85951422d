#include "ipc/shared_memory.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "support/locked_memory.h"

namespace deepfreeze {
namespace {

constexpr std::size_t kHuge = 2 * 1024 * 1024;

TEST(SharedMemory, IsTheSameForWhoeverMapsIt) {
  auto memory = SharedMemory::allocate(10'000);
  ASSERT_TRUE(memory) << memory.error().message();
  ASSERT_EQ(memory->bytes().size(), 10'000U);
  EXPECT_EQ(memory->bytes()[9'999], std::byte{0});
  auto other = SharedMemory::map(UniqueFd(::dup(memory->fd())));
  ASSERT_TRUE(other) << other.error().message();
  ASSERT_EQ(other->bytes().size(), 10'000U);
  memory->bytes()[9'999] = std::byte{7};
  EXPECT_EQ(other->bytes()[9'999], std::byte{7});
  *memory = SharedMemory();  // its maker goes, the bytes stay
  EXPECT_EQ(other->bytes()[9'999], std::byte{7});
}

TEST(SharedMemory, ItsSizeCannotBeChanged) {
  const auto memory = SharedMemory::allocate(10'000);
  EXPECT_NE(::ftruncate(memory->fd(), 0), 0);
  EXPECT_NE(::ftruncate(memory->fd(), 20'000), 0);
  UniqueFd unsealed(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(unsealed.get(), 10'000), 0);
  const auto refused = SharedMemory::map(std::move(unsealed));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_FALSE(SharedMemory::map(UniqueFd(::dup(STDIN_FILENO))));
}

TEST(SharedMemory, AllPagesAreTakenAndKeepTheirBytes) {
  auto memory = SharedMemory::allocate(3 * kHuge + 5'000);
  ASSERT_TRUE(memory);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory->bytes().data()) % kHuge, 0U);
  memory->bytes()[kHuge + 1] = std::byte{7};
  ASSERT_TRUE(memory->populate());
  std::vector<unsigned char> resident((3 * kHuge + 5'000 + 4095) / 4096);
  ASSERT_EQ(::mincore(memory->bytes().data(), memory->bytes().size(), resident.data()), 0);
  EXPECT_TRUE(std::ranges::all_of(resident, [](unsigned char page) { return (page & 1) != 0; }));
  EXPECT_EQ(memory->bytes()[kHuge + 1], std::byte{7});
  EXPECT_EQ(memory->bytes()[kHuge + 2], std::byte{0});
}

TEST(SharedMemory, MoreThanThereIsIsAnError) {
  for (const std::size_t bytes : {SIZE_MAX, std::size_t{1} << 62}) {
    const auto refused = SharedMemory::allocate(bytes);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), ErrorCode::kNoSpace) << refused.error().message();
  }
}

// The flags of the mapping that begins there, as the kernel lists them.
std::string flags_at(const std::byte* begin) {
  std::ifstream maps("/proc/self/smaps");
  const std::string first = fmt::format("{:x}-", reinterpret_cast<std::uintptr_t>(begin));
  bool is_found = false;
  for (std::string line; std::getline(maps, line);) {
    is_found = is_found || line.starts_with(first);
    if (is_found && line.starts_with("VmFlags:")) return line + " ";
  }
  return "";
}

bool lists_flags() {
  std::ifstream maps("/proc/self/smaps");
  for (std::string line; std::getline(maps, line);) {
    if (line.starts_with("VmFlags:")) return true;
  }
  return false;
}

TEST(SharedMemory, ASecretGoesNeitherToSwapNorIntoACoreFile) {
  const std::uint64_t before = locked_memory();
  auto memory = SharedMemory::allocate(4096);
  ASSERT_TRUE(memory);
  ASSERT_TRUE(memory->keep_secret());
  if (locks_memory()) {
    EXPECT_EQ(locked_memory(), before + 4);
  }
  if (!lists_flags()) GTEST_SKIP() << "LEFT OUT: /proc/self/smaps of this kernel has no VmFlags";
  const std::string flags = flags_at(memory->bytes().data());
  for (const char* flag : {" dd ", " dc "}) {  // not dumped, not for children
    EXPECT_NE(flags.find(flag), std::string::npos) << flag << "in" << flags;
  }
}

TEST(SharedMemory, NothingIsMemoryToo) {
  auto memory = SharedMemory::allocate(0);
  ASSERT_TRUE(memory);
  EXPECT_TRUE(memory->bytes().empty());
  EXPECT_TRUE(memory->populate());
}

}  // namespace
}  // namespace deepfreeze

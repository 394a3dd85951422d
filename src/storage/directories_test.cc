// Which directories are synced when a run's directory is made, or found: every fsync is counted.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <set>
#include <string>

#include "storage/posix_vfs.h"
#include "support/scoped_dir.h"

namespace {

std::set<std::string>& synced() {
  static std::set<std::string> names;
  return names;
}

}  // namespace

extern "C" {
int __real_fsync(int fd);
// In place of fsync(), by the linker.
int __wrap_fsync(int fd) {
  std::array<char, 4096> name{};
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  if (::readlink(link.c_str(), name.data(), name.size() - 1) > 0) synced().insert(name.data());
  return __real_fsync(fd);
}
}

namespace deepfreeze {
namespace {

TEST(DurableDirectories, EachNewOnesParentIsSynced) {
  const ScopedDir dir;
  synced().clear();
  ASSERT_TRUE(make_durable_directories(dir.path() / "a" / "b" / "run"));
  EXPECT_TRUE(synced().contains(dir.path()));
  EXPECT_TRUE(synced().contains(dir.path() / "a"));
  EXPECT_TRUE(synced().contains(dir.path() / "a" / "b"));
}

// The process that made them may have died before its sync.
TEST(DurableDirectories, ThatAreThereAlreadyAreSyncedOnceMore) {
  const ScopedDir dir;
  std::filesystem::create_directories(dir.path() / "a" / "b");
  synced().clear();
  ASSERT_TRUE(make_durable_directories(dir.path() / "a" / "b" / "run"));
  EXPECT_TRUE(synced().contains(dir.path()));
  EXPECT_TRUE(synced().contains(dir.path() / "a"));
  synced().clear();
  ASSERT_TRUE(make_durable_directories(dir.path() / "a" / "b" / "run/"));
  EXPECT_TRUE(synced().contains(dir.path()));
  EXPECT_TRUE(synced().contains(dir.path() / "a" / "b"));
}

TEST(DurableDirectories, ARelativePathNeedsTheCurrentDirectory) {
  const ScopedDir dir;
  const auto before = std::filesystem::current_path();
  std::filesystem::create_directory(dir.path() / "gone");
  std::filesystem::current_path(dir.path() / "gone");
  std::filesystem::remove(dir.path() / "gone");
  const auto found = absolute_path("run");
  std::filesystem::current_path(before);
  ASSERT_FALSE(found);
  EXPECT_TRUE(found.error().message().contains("current directory"));
}

TEST(DurableDirectories, ThatCantBeMadeAreNamed) {
  const auto made = make_durable_directories("/proc/no-such-process/run");  // nobody may, not root
  ASSERT_FALSE(made);
  EXPECT_TRUE(made.error().message().starts_with("mkdir /proc/no-such-process: "))
      << made.error().message();
}

}  // namespace
}  // namespace deepfreeze

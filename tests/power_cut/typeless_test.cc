// A file system whose directories do not report the types of their entries: each must be asked for.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "power_cut/loop_disk.h"
#include "storage/posix_vfs.h"
#include "support/deny_syscall.h"

namespace deepfreeze {
namespace {

class Typeless : public testing::Test {
 protected:
  void SetUp() override {
    auto made = LoopDisk::make({"typeless", "ext4", "", "^filetype"});
    if (!made) {
      ASSERT_EQ(made.error().code(), ErrorCode::kUnsupported) << made.error().message();
      GTEST_SKIP() << "LEFT OUT: " << made.error().message();
    }
    disk_ = *std::move(made);
    ASSERT_TRUE(disk_->mount());
    std::filesystem::create_directory(disk_->path() / "d");
    std::ofstream(disk_->path() / "d" / "file") << "x";
    std::filesystem::create_directory(disk_->path() / "d" / "directory");
    vfs_ = open_posix_vfs(disk_->path()).value();
  }
  void TearDown() override { vfs_.reset(); }

  std::unique_ptr<LoopDisk> disk_;
  std::unique_ptr<Vfs> vfs_;
};

TEST_F(Typeless, NamesAreAskedForOneByOne) {
  const auto entries = vfs_->list("d").value();
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_EQ(entries[0].name, "directory");
  EXPECT_TRUE(entries[0].is_directory);
  EXPECT_EQ(entries[1].name, "file");
  EXPECT_FALSE(entries[1].is_directory);
}

TEST_F(Typeless, ANameThatCannotBeAskedForIsNoMissingName) {
  DeniedCall denied{.number = SYS_newfstatat, .argument = 3, .most = AT_SYMLINK_NOFOLLOW};
  for (const int refused : {EIO, ENOENT}) {
    denied.os_errno = refused;
    const bool ran = run_with_denied(denied, [&] {
      const auto entries = vfs_->list("d");
      ASSERT_EQ(entries.has_value(), refused == ENOENT) << "it may have gone since";
      if (entries) {
        EXPECT_TRUE(entries->empty());
      } else {
        EXPECT_NE(entries.error().message().find("/d/"), std::string::npos);
      }
    });
    if (!ran) GTEST_SKIP() << "LEFT OUT: this machine allows no seccomp filter";
  }
}

}  // namespace
}  // namespace deepfreeze

// System calls that the kernel refuses, on real files.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "storage/posix_vfs.h"
#include "support/aligned_bytes.h"
#include "support/code_of.h"
#include "support/deny_syscall.h"
#include "support/scoped_dir.h"

namespace deepfreeze::refused_calls_test {
namespace {

constexpr std::uint64_t kBytesMax = 1U << 20;

class RefusedCallsTest : public testing::Test {
 protected:
  // Here, since GTEST_SKIP() leaves only the function that it stands in.
  void SetUp() override {
    if (!run_with_denied({.number = SYS_fcntl, .os_errno = EINVAL}, [] {})) {
      GTEST_SKIP() << "LEFT OUT: this machine allows no seccomp filter";
    }
  }

  static void deny(DeniedCall denied, const std::function<void()>& body) {
    ASSERT_TRUE(run_with_denied(denied, body));
  }

  ScopedDir dir_;
  std::unique_ptr<Vfs> vfs_ = open_posix_vfs(dir_.path()).value();
};

TEST_F(RefusedCallsTest, WithoutOpenat2FilesAreStillMadeAndRead) {
  deny({.number = SYS_openat2, .os_errno = ENOSYS}, [this] {
    ASSERT_TRUE(vfs_->make_dir("a"));
    ASSERT_TRUE(vfs_->make_dir("a/b"));
    ASSERT_TRUE(write_new_file(*vfs_, "a/b/file", "text"));
    EXPECT_EQ(read_file(*vfs_, "a/b/file", kBytesMax).value(), "text");
    EXPECT_EQ(code_of(vfs_->create("a/b/file", Access::kBuffered)), ErrorCode::kExists);
    EXPECT_EQ(vfs_->list("a").value().size(), 1U);
    EXPECT_TRUE(vfs_->sync_dir("a/b"));
    EXPECT_TRUE(vfs_->sync_dir(""));
  });
}

TEST_F(RefusedCallsTest, WithoutExclusiveRenameALinkStillNeverReplaces) {
  ASSERT_TRUE(write_new_file(*vfs_, "from", "new"));
  ASSERT_TRUE(write_new_file(*vfs_, "taken", "old"));
  deny({.number = SYS_renameat2, .os_errno = EINVAL}, [this] {
    const auto renamed = vfs_->rename_no_replace("from", "taken");
    ASSERT_FALSE(renamed);
    EXPECT_EQ(code_of(renamed), ErrorCode::kExists);
    EXPECT_TRUE(vfs_->rename_no_replace("from", "to"));
  });
  EXPECT_EQ(read_file(*vfs_, "taken", kBytesMax).value(), "old");
  EXPECT_EQ(read_file(*vfs_, "to", kBytesMax).value(), "new");
  EXPECT_FALSE(std::filesystem::exists(dir_.path() / "from"));
}

TEST_F(RefusedCallsTest, AFileSystemWithoutLinksSaysSo) {
  ASSERT_TRUE(write_new_file(*vfs_, "from", "text"));
  for (const int refusal : {EPERM, EOPNOTSUPP, EXDEV, EMLINK, EROFS}) {
    deny({.number = SYS_linkat, .os_errno = refusal}, [&] {
      EXPECT_EQ(code_of(vfs_->link_file("from", "to")), ErrorCode::kUnsupported) << refusal;
      const auto file = vfs_->open_read("from", Access::kBuffered).value();
      EXPECT_EQ(code_of(vfs_->link_open_file(*file, "to")), ErrorCode::kUnsupported) << refusal;
    });
  }
  deny({.number = SYS_linkat, .os_errno = EIO},
       [this] { EXPECT_EQ(code_of(vfs_->link_file("from", "to")), ErrorCode::kIo); });
  struct stat status = {};
  ASSERT_EQ(::stat((dir_.path() / "from").c_str(), &status), 0);
  EXPECT_NE(status.st_mode & S_IWUSR, 0U) << "nothing was linked";
}

TEST_F(RefusedCallsTest, AFileThatStaysWritableGetsNoOtherName) {
  ASSERT_TRUE(write_new_file(*vfs_, "from", "text"));
  deny({.number = SYS_fchmod, .os_errno = EROFS}, [this] {
    EXPECT_EQ(code_of(vfs_->link_file("from", "to")), ErrorCode::kUnsupported);
    const auto file = vfs_->open_read("from", Access::kBuffered).value();
    EXPECT_EQ(code_of(vfs_->link_open_file(*file, "to")), ErrorCode::kUnsupported);
  });
  EXPECT_FALSE(std::filesystem::exists(dir_.path() / "to"));
  EXPECT_TRUE(vfs_->link_file("from", "to"));
}

TEST_F(RefusedCallsTest, AFileThatCantBeSyncedIsNotLinked) {
  ASSERT_TRUE(write_new_file(*vfs_, "from", "text"));
  deny({.number = SYS_fdatasync, .os_errno = EIO}, [this] {
    const auto file = vfs_->open_read("from", Access::kBuffered).value();
    EXPECT_EQ(code_of(vfs_->link_open_file(*file, "to")), ErrorCode::kIo);
  });
  EXPECT_FALSE(std::filesystem::exists(dir_.path() / "to"));
}

TEST_F(RefusedCallsTest, AFileSystemWithoutDirectAccessGivesABufferedFile) {
  deny({.number = SYS_fcntl, .os_errno = EINVAL}, [this] {
    auto file = vfs_->create("file", Access::kDirect).value();
    EXPECT_EQ(file->access(), Access::kBuffered);
    EXPECT_TRUE(file->write_at(0, std::as_bytes(std::span("odd size"))));
  });
}

TEST_F(RefusedCallsTest, ADirectReadWhoseFileCantBeMeasuredIsAnError) {
  ASSERT_TRUE(write_new_file(*vfs_, "file", std::string(9000, 'x')));
  const auto file = vfs_->open_read("file", Access::kDirect).value();
  if (file->access() != Access::kDirect) GTEST_SKIP() << "LEFT OUT: no direct reads here";
  const AlignedBytes into(12'288);
  EXPECT_EQ(file->read_at(0, into.bytes()).value(), 9000U);
  int refused = 0;
  for (const long number : {SYS_fstat, SYS_newfstatat, SYS_statx}) {  // the C library takes one
    deny({.number = number, .os_errno = EIO}, [&] {
      const auto count = file->read_at(0, into.bytes());
      if (count) return;
      ++refused;
      EXPECT_EQ(code_of(count), ErrorCode::kIo);
    });
  }
  EXPECT_EQ(refused, 1);
}

TEST_F(RefusedCallsTest, AFileSystemWithoutPreallocationIsNoError) {
  auto file = vfs_->create("file", Access::kBuffered).value();
  deny({.number = SYS_fallocate, .os_errno = EOPNOTSUPP},
       [&] { EXPECT_TRUE(file->preallocate(kBytesMax)); });
}

TEST_F(RefusedCallsTest, AFailedCloseIsReported) {
  auto file = vfs_->create("file", Access::kBuffered).value();
  const auto fd = static_cast<std::uint32_t>(file->native_fd().value());
  deny({.number = SYS_close, .os_errno = EIO, .argument = 0, .least = fd, .most = fd}, [&] {
    const Status closed = file->close();
    ASSERT_EQ(code_of(closed), ErrorCode::kIo);
    EXPECT_TRUE(closed.error().message().contains("close ")) << closed.error().message();
  });
}

TEST_F(RefusedCallsTest, AFailedSyncIsReported) {
  auto file = vfs_->create("file", Access::kBuffered).value();
  deny({.number = SYS_fdatasync, .os_errno = EIO}, [&] {
    const auto synced = file->sync();
    ASSERT_FALSE(synced);
    EXPECT_EQ(code_of(synced), ErrorCode::kIo);
    EXPECT_EQ(synced.error().message(), "sync " + vfs_->path_of("file") + ": Input/output error");
  });
  deny({.number = SYS_fsync, .os_errno = EDQUOT},
       [&] { EXPECT_EQ(code_of(vfs_->sync_dir("")), ErrorCode::kNoSpace); });
}

TEST_F(RefusedCallsTest, AFailedReadOrListingIsReported) {
  ASSERT_TRUE(write_new_file(*vfs_, "file", "text"));
  auto file = vfs_->open_read("file", Access::kBuffered).value();
  std::array<std::byte, 4> into{};
  deny({.number = SYS_pread64, .os_errno = EIO},
       [&] { EXPECT_EQ(code_of(file->read_at(0, into)), ErrorCode::kIo); });
  deny({.number = SYS_getdents64, .os_errno = EIO},
       [&] { EXPECT_EQ(code_of(vfs_->list("")), ErrorCode::kIo); });
  deny({.number = SYS_fcntl, .os_errno = EMFILE}, [&] {  // the listing's own descriptor
    const auto listed = vfs_->list("");
    ASSERT_FALSE(listed);
    EXPECT_EQ(listed.error().os_errno(), EMFILE);
  });
}

// A device that takes nothing and says nothing would be written to for ever.
TEST_F(RefusedCallsTest, AWriteOfNothingIsAnError) {
  auto file = vfs_->create("file", Access::kBuffered).value();
  deny({.number = SYS_pwrite64, .os_errno = 0}, [&] {
    EXPECT_EQ(code_of(file->write_at(0, std::as_bytes(std::span("text")))), ErrorCode::kIo);
  });
}

TEST_F(RefusedCallsTest, AFailedFlushIsReportedAndAMissingOneIsNot) {
  auto file = vfs_->create("file", Access::kBuffered).value();
  ASSERT_TRUE(file->write_at(0, std::as_bytes(std::span("text"))));
  deny({.number = SYS_sync_file_range, .os_errno = EIO},
       [&] { EXPECT_EQ(code_of(file->flush_range(0, 4)), ErrorCode::kIo); });
  for (const int os_errno : {ENOSYS, EPERM, EINVAL, ESPIPE}) {
    deny({.number = SYS_sync_file_range, .os_errno = os_errno},
         [&] { EXPECT_TRUE(file->flush_range(0, 4)) << os_errno; });
  }
}

TEST_F(RefusedCallsTest, MakingDurableDirectoriesSaysWhatStoodInTheWay) {
  const std::string denied = ": Permission denied";
  deny({.number = SYS_newfstatat, .os_errno = EACCES}, [&] {
    const auto made = make_durable_directories(dir_.path() / "a");
    ASSERT_FALSE(made);
    EXPECT_TRUE(made.error().message().starts_with("mkdir ")) << made.error().message();
    EXPECT_TRUE(made.error().message().ends_with(denied)) << made.error().message();
  });
  deny({.number = SYS_openat, .os_errno = EACCES}, [&] {
    const auto made = make_durable_directories(dir_.path() / "b");
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().message(), "sync directory " + dir_.path().string() + denied);
  });
}

TEST_F(RefusedCallsTest, MakingDurableDirectoriesSyncsTheParentOfExactlyTheNewOnes) {
  deny({.number = SYS_fsync, .os_errno = EIO}, [this] {
    EXPECT_TRUE(make_durable_directories(dir_.path()));
    const auto made = make_durable_directories(dir_.path() / "a" / "b");
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().message(),
              "sync directory " + dir_.path().string() + ": Input/output error");
  });
}

}  // namespace
}  // namespace deepfreeze::refused_calls_test

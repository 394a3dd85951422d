// What only real files show; what every Vfs does is in tests/conformance.
#include "storage/posix_vfs.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iostream>

#include "base/log.h"
#include "base/scope_exit.h"
#include "base/unique_fd.h"
#include "support/aligned_bytes.h"
#include "support/code_of.h"
#include "support/deny_syscall.h"
#include "support/refuse_direct.h"
#include "support/scoped_dir.h"

namespace deepfreeze {
namespace {

constexpr std::uint64_t kBytesMax = 1U << 20;
constexpr std::size_t kPage = 4096;

class PosixVfsTest : public testing::Test {
 protected:
  ScopedDir dir_;
  std::unique_ptr<Vfs> vfs_ = open_posix_vfs(dir_.path()).value();
};

void deny(DeniedCall denied, const std::function<void()>& body) {
  if (!run_with_denied(denied, body)) {
    GTEST_SKIP() << "LEFT OUT: this machine allows no seccomp filter";
  }
}

TEST_F(PosixVfsTest, ARootThatIsMissingOrNoDirectoryIsNotFound) {
  ASSERT_TRUE(write_new_file(*vfs_, "file", "x"));
  for (const char* name : {"none", "file", "file/below"}) {
    const auto opened = open_posix_vfs(dir_.path() / name);
    ASSERT_FALSE(opened) << name;
    EXPECT_EQ(code_of(opened), ErrorCode::kNotFound);
    EXPECT_NE(opened.error().message().find(dir_.path() / name), std::string::npos);
  }
}

TEST_F(PosixVfsTest, MessagesNameTheFullPathAndTheCause) {
  const auto opened = vfs_->open_read("step/none", Access::kBuffered);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().message(),
            "open " + dir_.path().string() + "/step/none: No such file or directory");
  EXPECT_EQ(opened.error().os_errno(), ENOENT);
}

// A root "in" with a real file, and links to what is inside it, beside it and far away.
void plant_links(const std::filesystem::path& root, Vfs& vfs) {
  ASSERT_TRUE(vfs.make_dir("in"));
  ASSERT_TRUE(vfs.make_dir("out"));
  ASSERT_TRUE(write_new_file(vfs, "out/secret", "s"));
  ASSERT_TRUE(vfs.make_dir("in/real"));
  ASSERT_TRUE(write_new_file(vfs, "in/real/file", "r"));
  std::filesystem::create_symlink("real", root / "in" / "inner_dir_link");
  std::filesystem::create_symlink("real/file", root / "in" / "inner_file_link");
  std::filesystem::create_symlink("../out", root / "in" / "dir_link");
  std::filesystem::create_symlink("../out/secret", root / "in" / "file_link");
  std::filesystem::create_symlink("/etc", root / "in" / "absolute_link");
  std::filesystem::create_symlink("nowhere", root / "in" / "dangling_link");
}

void expect_links_refused(const std::filesystem::path& root) {
  auto vfs = open_posix_vfs(root / "in").value();
  EXPECT_TRUE(read_file(*vfs, "real/file", kBytesMax));
  EXPECT_FALSE(read_file(*vfs, "inner_file_link", kBytesMax));
  EXPECT_FALSE(read_file(*vfs, "inner_dir_link/file", kBytesMax));
  EXPECT_FALSE(vfs->list("inner_dir_link"));
  EXPECT_FALSE(read_file(*vfs, "file_link", kBytesMax));
  EXPECT_FALSE(read_file(*vfs, "dir_link/secret", kBytesMax));
  EXPECT_FALSE(read_file(*vfs, "absolute_link/hostname", kBytesMax));
  EXPECT_FALSE(write_new_file(*vfs, "dir_link/new", "x"));
  EXPECT_FALSE(write_new_file(*vfs, "dangling_link", "x"));
  EXPECT_FALSE(vfs->list("dir_link"));
  EXPECT_FALSE(vfs->sync_dir("dir_link"));
  EXPECT_FALSE(vfs->make_dir("dir_link/new"));
  EXPECT_FALSE(vfs->remove_file("dir_link/secret"));
  EXPECT_FALSE(vfs->rename_no_replace("dir_link/secret", "stolen"));
  EXPECT_EQ(code_of(vfs->open_read("file_link", Access::kBuffered)), ErrorCode::kIo);
  EXPECT_TRUE(std::filesystem::exists(root / "out" / "secret"));
  EXPECT_FALSE(std::filesystem::exists(root / "in" / "nowhere"));
}

TEST_F(PosixVfsTest, NoSymbolicLinkBelowTheRootIsFollowed) {
  plant_links(dir_.path(), *vfs_);
  expect_links_refused(dir_.path());
}

TEST_F(PosixVfsTest, WithoutOpenat2NoSymbolicLinkIsFollowedEither) {
  plant_links(dir_.path(), *vfs_);
  deny({.number = SYS_openat2, .os_errno = EPERM}, [this] { expect_links_refused(dir_.path()); });
}

TEST_F(PosixVfsTest, WithoutOpenat2FilesAreStillMadeAndRead) {
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

TEST_F(PosixVfsTest, WithoutExclusiveRenameALinkStillNeverReplaces) {
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

TEST_F(PosixVfsTest, AFileSystemWithoutDirectAccessGivesABufferedFile) {
  deny({.number = SYS_fcntl, .os_errno = EINVAL}, [this] {
    auto file = vfs_->create("file", Access::kDirect).value();
    EXPECT_EQ(file->access(), Access::kBuffered);
    EXPECT_TRUE(file->write_at(0, std::as_bytes(std::span("odd size"))));
  });
}

TEST_F(PosixVfsTest, AFileSystemWithoutPreallocationIsNoError) {
  auto file = vfs_->create("file", Access::kBuffered).value();
  deny({.number = SYS_fallocate, .os_errno = EOPNOTSUPP},
       [&] { EXPECT_TRUE(file->preallocate(kBytesMax)); });
}

TEST_F(PosixVfsTest, AFailedCloseIsReported) {
  auto file = vfs_->create("file", Access::kBuffered).value();
  const auto fd = static_cast<std::uint32_t>(file->native_fd().value());
  deny({.number = SYS_close, .os_errno = EIO, .argument = 0, .least = fd, .most = fd}, [&] {
    const Status closed = file->close();
    ASSERT_EQ(code_of(closed), ErrorCode::kIo);
    EXPECT_TRUE(closed.error().message().contains("close ")) << closed.error().message();
  });
}

TEST_F(PosixVfsTest, AFailedSyncIsReported) {
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

TEST_F(PosixVfsTest, AFailedReadOrListingIsReported) {
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
TEST_F(PosixVfsTest, AWriteOfNothingIsAnError) {
  auto file = vfs_->create("file", Access::kBuffered).value();
  deny({.number = SYS_pwrite64, .os_errno = 0}, [&] {
    EXPECT_EQ(code_of(file->write_at(0, std::as_bytes(std::span("text")))), ErrorCode::kIo);
  });
}

TEST_F(PosixVfsTest, AFailedFlushIsReportedAndAMissingOneIsNot) {
  auto file = vfs_->create("file", Access::kBuffered).value();
  ASSERT_TRUE(file->write_at(0, std::as_bytes(std::span("text"))));
  deny({.number = SYS_sync_file_range, .os_errno = EIO},
       [&] { EXPECT_EQ(code_of(file->flush_range(0, 4)), ErrorCode::kIo); });
  for (const int os_errno : {ENOSYS, EPERM, EINVAL, ESPIPE}) {
    deny({.number = SYS_sync_file_range, .os_errno = os_errno},
         [&] { EXPECT_TRUE(file->flush_range(0, 4)) << os_errno; });
  }
}

TEST_F(PosixVfsTest, PreallocationTakesSpaceAndLeavesTheSize) {
  auto file = vfs_->create("file", Access::kBuffered).value();
  ASSERT_TRUE(file->preallocate(kBytesMax));
  EXPECT_EQ(file->size().value(), 0U);
  struct stat status = {};
  ASSERT_EQ(::stat(vfs_->path_of("file").c_str(), &status), 0);
  if (status.st_blocks == 0) std::cerr << "LEFT OUT: no preallocation on this file system\n";
}

TEST_F(PosixVfsTest, DirectWritesComeBackThroughBothAccesses) {
  const AlignedBytes written(3 * kPage);
  written.fill_pattern();
  {
    auto file = vfs_->create("file", Access::kDirect).value();
    if (file->access() != Access::kDirect) std::cerr << "LEFT OUT: no O_DIRECT here, buffered\n";
    ASSERT_TRUE(file->write_at(kPage, written.bytes().subspan(kPage)));
    ASSERT_TRUE(file->write_at(0, written.bytes().first(kPage)));
    ASSERT_TRUE(file->truncate(2 * kPage + 1000));  // an end that no direct read can be aligned to
    ASSERT_TRUE(file->sync());
    ASSERT_TRUE(file->close());
  }
  for (const Access access : {Access::kDirect, Access::kBuffered}) {
    const AlignedBytes read(4 * kPage);
    auto file = vfs_->open_read("file", access).value();
    ASSERT_EQ(file->read_at(0, read.bytes()).value(), 2 * kPage + 1000);
    EXPECT_TRUE(std::ranges::equal(read.bytes().first(2 * kPage + 1000),
                                   written.bytes().first(2 * kPage + 1000)));
    EXPECT_EQ(file->read_at(4 * kPage, read.bytes()).value(), 0U);
  }
}

// It opened with O_DIRECT, so nobody could know before the first write.
TEST_F(PosixVfsTest, ADirectWriteThatTheFileSystemRefusesGoesOnBuffered) {
  std::vector<std::string> lines;
  set_log_sink([&lines](std::string_view line) { lines.emplace_back(line); });
  const ScopeExit reset([] { set_log_sink({}); });
  const AlignedBytes written(4 * kPage);
  written.fill_pattern();
  const bool ran = run_with_direct_access_refused([&] {
    for (const char* name : {"a", "b"}) {
      auto file = vfs_->create(name, Access::kDirect).value();
      if (file->access() != Access::kDirect) continue;
      const Status done = file->write_at(kPage, written.bytes().subspan(kPage));
      ASSERT_TRUE(done) << done.error().message();
      EXPECT_EQ(file->access(), Access::kBuffered);
      ASSERT_TRUE(file->write_at(0, written.bytes().first(kPage)));
      const AlignedBytes back(4 * kPage);
      EXPECT_EQ(file->read_at(0, back.bytes()).value(), 4 * kPage);
      EXPECT_TRUE(std::ranges::equal(back.bytes(), written.bytes()));
    }
  });
  if (!ran) GTEST_SKIP() << "LEFT OUT: this machine allows no seccomp filter that asks";
  ASSERT_EQ(lines.size(), 1U);  // for two files
  EXPECT_NE(lines[0].find("/a refuses direct access"), std::string::npos) << lines[0];
}

TEST_F(PosixVfsTest, AFileThatRefusesDirectReadsIsReadByThePageCache) {
  AlignedBytes written(2 * kPage);
  written.fill_pattern();
  ASSERT_TRUE(vfs_->create("file", Access::kBuffered).value()->write_at(0, written.bytes()));
  const bool ran = run_with_direct_access_refused([&] {
    auto file = vfs_->open_read("file", Access::kDirect).value();
    const AlignedBytes back(2 * kPage);
    const auto count = file->read_at(0, back.bytes());
    ASSERT_TRUE(count) << count.error().message();
    EXPECT_EQ(*count, 2 * kPage);
    EXPECT_EQ(file->access(), Access::kBuffered);
    EXPECT_TRUE(std::ranges::equal(back.bytes(), written.bytes()));
  });
  if (!ran) GTEST_SKIP() << "LEFT OUT: this machine allows no seccomp filter that asks";
}

// Asked without our code: some file systems take any.
bool takes_any_alignment(const std::filesystem::path& path, std::span<const std::byte> page) {
  const UniqueFd file(::open(path.c_str(), O_CREAT | O_WRONLY | O_DIRECT | O_CLOEXEC, 0600));
  return !file.valid() || ::pwrite(file.get(), page.data(), page.size(), 100) >= 0;
}

TEST_F(PosixVfsTest, AMisalignedDirectWriteIsAnError) {
  const AlignedBytes memory(2 * kPage);
  const auto page = memory.bytes().first(kPage);
  if (takes_any_alignment(dir_.path() / "probe", page)) {
    GTEST_SKIP() << "LEFT OUT: this file system takes any alignment";
  }
  auto file = vfs_->create("file", Access::kDirect).value();
  const auto written = file->write_at(100, page);
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().os_errno(), EINVAL);
}

TEST_F(PosixVfsTest, AFifoIsRefusedAndDoesNotBlock) {
  ASSERT_EQ(::mkfifo((dir_.path() / "fifo").c_str(), 0600), 0);
  const auto opened = vfs_->open_read("fifo", Access::kBuffered);
  ASSERT_FALSE(opened);
  EXPECT_NE(opened.error().message().find("not a regular file"), std::string::npos);
}

TEST_F(PosixVfsTest, ListingCountsALinkToADirectoryAsNoDirectory) {
  std::filesystem::create_symlink("/", dir_.path() / "link");
  const auto entries = vfs_->list("").value();
  ASSERT_EQ(entries.size(), 1U);
  EXPECT_EQ(entries[0].name, "link");
  EXPECT_FALSE(entries[0].is_directory);
}

class SmallMount {
 public:
  explicit SmallMount(const std::filesystem::path& where) : where_(where) {
    mounted_ = ::mount("deepfreeze", where_.c_str(), "tmpfs", 0, "size=64k") == 0;
  }
  SmallMount(const SmallMount&) = delete;
  SmallMount& operator=(const SmallMount&) = delete;
  ~SmallMount() {
    if (mounted_) ::umount2(where_.c_str(), MNT_DETACH);
  }
  [[nodiscard]] bool mounted() const { return mounted_; }

 private:
  std::filesystem::path where_;
  bool mounted_ = false;
};

TEST_F(PosixVfsTest, AFullDiskIsNoSpaceAtWriteAndAtPreallocate) {
  ASSERT_TRUE(vfs_->make_dir("mount"));
  const SmallMount mount(dir_.path() / "mount");
  if (!mount.mounted()) GTEST_SKIP() << "LEFT OUT: this machine lets us mount no tmpfs";
  auto small = open_posix_vfs(dir_.path() / "mount").value();
  auto file = small->create("file", Access::kBuffered).value();
  EXPECT_EQ(code_of(file->preallocate(kBytesMax)), ErrorCode::kNoSpace);
  const std::string big(kBytesMax, 'x');
  const auto written = file->write_at(0, std::as_bytes(std::span(big)));
  ASSERT_FALSE(written);
  EXPECT_EQ(code_of(written), ErrorCode::kNoSpace);
  EXPECT_NE(written.error().message().find("mount/file at 65536: No space left on device"),
            std::string::npos)
      << written.error().message();
}

TEST(MakeDurableDirectories, MakesWhatIsMissingAndAcceptsWhatIsThere) {
  const ScopedDir dir;
  EXPECT_TRUE(make_durable_directories(dir.path() / "a" / "b" / "c"));
  EXPECT_TRUE(make_durable_directories(dir.path() / "a" / "b" / "c"));
  EXPECT_TRUE(make_durable_directories(dir.path() / "a" / "d" / ""));
  EXPECT_TRUE(std::filesystem::is_directory(dir.path() / "a" / "b" / "c"));
  EXPECT_TRUE(std::filesystem::is_directory(dir.path() / "a" / "d"));
}

TEST(MakeDurableDirectories, SaysWhatStoodInTheWay) {
  const ScopedDir dir;
  const std::string denied = ": Permission denied";
  deny({.number = SYS_newfstatat, .os_errno = EACCES}, [&] {
    const auto made = make_durable_directories(dir.path() / "a");
    ASSERT_FALSE(made);
    EXPECT_TRUE(made.error().message().starts_with("mkdir ")) << made.error().message();
    EXPECT_TRUE(made.error().message().ends_with(denied)) << made.error().message();
  });
  deny({.number = SYS_openat, .os_errno = EACCES}, [&] {
    const auto made = make_durable_directories(dir.path() / "b");
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().message(), "sync directory " + dir.path().string() + denied);
  });
}

TEST(MakeDurableDirectories, SyncsTheParentOfExactlyTheNewOnes) {
  const ScopedDir dir;
  deny({.number = SYS_fsync, .os_errno = EIO}, [&dir] {
    EXPECT_TRUE(make_durable_directories(dir.path()));
    const auto made = make_durable_directories(dir.path() / "a" / "b");
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().message(),
              "sync directory " + dir.path().string() + ": Input/output error");
  });
}

TEST(MakeDurableDirectories, RefusesAFileInTheWay) {
  const ScopedDir dir;
  ASSERT_TRUE(write_new_file(*open_posix_vfs(dir.path()).value(), "file", ""));
  for (const char* name : {"file", "file/below"}) {
    const auto made = make_durable_directories(dir.path() / name);
    ASSERT_FALSE(made) << name;
    EXPECT_EQ(made.error().os_errno(), ENOTDIR) << name;
  }
}

}  // namespace
}  // namespace deepfreeze

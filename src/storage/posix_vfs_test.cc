// Behaviour that only real files show; tests/conformance has the behaviour of every Vfs, and
// refused_calls_test.cc the system calls that fail.
#include "storage/posix_vfs.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "base/log.h"
#include "base/scope_exit.h"
#include "base/unique_fd.h"
#include "support/aligned_bytes.h"
#include "support/code_of.h"
#include "support/deny_syscall.h"
#include "support/refuse_direct.h"
#include "support/scoped_dir.h"
#include "support/sim_disk.h"

namespace deepfreeze {
namespace {

constexpr std::uint64_t kBytesMax = 1U << 20;
constexpr std::size_t kPage = 4096;

class PosixVfsTest : public testing::Test {
 protected:
  ScopedDir dir_;
  std::unique_ptr<Vfs> vfs_ = open_posix_vfs(dir_.path()).value();
};

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

// A root "in" with a real file, and links to entries inside it, beside it and far away.
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

TEST_F(PosixVfsTest, AStampTellsAFileFromItsCopyAndItsNextVersion) {
  ASSERT_TRUE(vfs_->make_dir("step"));
  ASSERT_TRUE(write_new_file(*vfs_, "step/a", "text"));
  const Stamp first = vfs_->stamp("step/a").value();
  EXPECT_EQ(first.bytes, 4U);
  EXPECT_EQ(vfs_->stamp("step/a").value(), first);
  ASSERT_TRUE(write_new_file(*vfs_, "step/b", "text"));
  EXPECT_NE(vfs_->stamp("step/b")->inode, first.inode);
  // The clock of the file system has ticks: until one has passed, a change may not show.
  const auto changed = [&](std::string_view name, const Stamp& before) {
    int i = 0;
    while (vfs_->stamp(name).value() == before) {
      ASSERT_TRUE(write_new_file(*vfs_, "step/new" + std::to_string(i), ""));
      std::ofstream(vfs_->path_of("step/a")) << "TEXT";
      ASSERT_LT(++i, 100'000);
    }
  };
  changed("step", vfs_->stamp("step").value());
  changed("step/a", first);
  EXPECT_EQ(vfs_->stamp("step/a")->bytes, 4U) << "by its time alone";
  EXPECT_TRUE(vfs_->stamp(""));
  EXPECT_EQ(code_of(vfs_->stamp("none")), ErrorCode::kNotFound);
  EXPECT_EQ(code_of(vfs_->stamp("step/none")), ErrorCode::kNotFound);
  EXPECT_EQ(code_of(vfs_->stamp("../a")), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of(SimDisk().stamp("a")), ErrorCode::kUnsupported);
}

TEST_F(PosixVfsTest, NoSymbolicLinkBelowTheRootIsFollowed) {
  plant_links(dir_.path(), *vfs_);
  expect_links_refused(dir_.path());
}

TEST_F(PosixVfsTest, WithoutOpenat2NoSymbolicLinkIsFollowedEither) {
  plant_links(dir_.path(), *vfs_);
  const bool ran = run_with_denied({.number = SYS_openat2, .os_errno = EPERM},
                                   [this] { expect_links_refused(dir_.path()); });
  if (!ran) GTEST_SKIP() << "LEFT OUT: this machine allows no seccomp filter";
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

// Asked without our code: some file systems take any, and so does a file without O_DIRECT.
bool takes_any_alignment(const std::filesystem::path& path, std::span<const std::byte> page) {
  const UniqueFd file(::open(path.c_str(), O_CREAT | O_WRONLY | O_DIRECT | O_CLOEXEC, 0600));
  return !file.valid() || ::pwrite(file.get(), page.data(), page.size(), 100) >= 0;
}

TEST_F(PosixVfsTest, AMisalignedDirectWriteIsAnError) {
  const AlignedBytes memory(2 * kPage);
  const auto page = memory.bytes().first(kPage);
  if (takes_any_alignment(dir_.path() / "probe", page)) {
    GTEST_SKIP() << "LEFT OUT: this file system takes any alignment, or no O_DIRECT";
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
    if (::mount("deepfreeze", where_.c_str(), "tmpfs", 0, "size=64k") != 0) os_errno_ = errno;
  }
  SmallMount(const SmallMount&) = delete;
  SmallMount& operator=(const SmallMount&) = delete;
  ~SmallMount() {
    if (os_errno_ == 0) ::umount2(where_.c_str(), MNT_DETACH);
  }
  [[nodiscard]] int os_errno() const { return os_errno_; }  // 0: it is mounted
  // No right to mount, or no tmpfs: any other error is a mistake of this test.
  [[nodiscard]] bool is_beyond_this_machine() const {
    return os_errno_ == EPERM || os_errno_ == EACCES || os_errno_ == ENODEV || os_errno_ == ENOSYS;
  }

 private:
  std::filesystem::path where_;
  int os_errno_ = 0;
};

TEST_F(PosixVfsTest, ARootThatIsMovedDeletedOrReplacedIsNotInItsPlace) {
  const std::filesystem::path root = dir_.path() / "above" / "root";
  ASSERT_TRUE(make_durable_directories(root));
  const auto vfs = open_posix_vfs(root).value();
  EXPECT_TRUE(vfs->is_in_place().value());
  std::filesystem::rename(root, dir_.path() / "moved");
  EXPECT_FALSE(vfs->is_in_place().value());
  EXPECT_EQ(code_of(vfs->reopen()), ErrorCode::kNotFound);
  ASSERT_TRUE(write_new_file(*vfs, "file", "x")) << "still the old one";
  EXPECT_TRUE(std::filesystem::exists(dir_.path() / "moved" / "file"));
  std::filesystem::remove_all(root.parent_path());
  std::ofstream(root.parent_path()) << "a file that has its name";
  EXPECT_FALSE(vfs->is_in_place().value());
  std::filesystem::remove(root.parent_path());
  ASSERT_TRUE(vfs->make_root());
  EXPECT_TRUE(vfs->is_in_place().value());
  ASSERT_TRUE(write_new_file(*vfs, "file", "x"));
  EXPECT_TRUE(std::filesystem::exists(root / "file"));
  std::filesystem::remove_all(root);
  std::filesystem::create_directory(root);
  EXPECT_FALSE(vfs->is_in_place().value());
  ASSERT_TRUE(vfs->reopen());
  EXPECT_TRUE(vfs->is_in_place().value());
}

// A directory made below an empty mount point would lie on another disk, and fill it.
TEST_F(PosixVfsTest, ARootIsNotMadeAgainWhileItsFileSystemIsNotMounted) {
  ASSERT_TRUE(vfs_->make_dir("mount"));
  const std::filesystem::path place = dir_.path() / "mount";
  for (const auto& root : {place / "root", place}) {
    std::unique_ptr<Vfs> vfs;
    {
      const SmallMount mount(place);
      const char* cause = std::strerror(mount.os_errno());
      if (mount.is_beyond_this_machine()) GTEST_SKIP() << "LEFT OUT: mount a tmpfs: " << cause;
      ASSERT_EQ(mount.os_errno(), 0) << cause;
      ASSERT_TRUE(make_durable_directories(root));
      vfs = open_posix_vfs(root).value();
    }
    EXPECT_FALSE(vfs->is_in_place().value()) << root;
    EXPECT_EQ(code_of(vfs->make_root()), ErrorCode::kIo) << root;
    EXPECT_TRUE(std::filesystem::is_empty(place)) << root;
  }
}

TEST_F(PosixVfsTest, AReadOnlyFileSystemIsNotWritable) {
  EXPECT_TRUE(vfs_->check_writable());
  ASSERT_TRUE(vfs_->make_dir("mount"));
  const SmallMount mount(dir_.path() / "mount");
  const char* cause = std::strerror(mount.os_errno());
  if (mount.is_beyond_this_machine()) GTEST_SKIP() << "LEFT OUT: mount a tmpfs: " << cause;
  const auto vfs = open_posix_vfs(dir_.path() / "mount").value();
  EXPECT_TRUE(vfs->check_writable());
  ASSERT_EQ(::mount("", (dir_.path() / "mount").c_str(), "", MS_REMOUNT | MS_RDONLY, nullptr), 0);
  const Status writable = vfs->check_writable();
  ASSERT_FALSE(writable);
  EXPECT_EQ(writable.error().os_errno(), EROFS);
}

TEST_F(PosixVfsTest, AFullDiskIsNoSpaceAtWriteAndAtPreallocate) {
  ASSERT_TRUE(vfs_->make_dir("mount"));
  const SmallMount mount(dir_.path() / "mount");
  const char* cause = std::strerror(mount.os_errno());
  if (mount.is_beyond_this_machine()) GTEST_SKIP() << "LEFT OUT: mount a tmpfs: " << cause;
  ASSERT_EQ(mount.os_errno(), 0) << cause;
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

// Its name there may be unsafe here, and the roots need not lie in each other.
TEST_F(PosixVfsTest, AFileOfAnotherRootIsLinked) {
  const ScopedDir other;
  const auto from = open_posix_vfs(other.path()).value();
  ASSERT_TRUE(write_new_file(*from, "file", "text"));
  const auto file = from->open_read("file", Access::kBuffered).value();
  ASSERT_TRUE(vfs_->link_open_file(*file, "name"));
  EXPECT_EQ(code_of(vfs_->link_open_file(*file, "name")), ErrorCode::kExists);
  EXPECT_EQ(code_of(vfs_->link_open_file(*file, "../name")), ErrorCode::kInvalidArgument);
  EXPECT_EQ(read_file(*vfs_, "name", kBytesMax).value(), "text");
  struct stat here = {};
  struct stat there = {};
  ASSERT_EQ(::stat((dir_.path() / "name").c_str(), &here), 0);
  ASSERT_EQ(::stat((other.path() / "file").c_str(), &there), 0);
  EXPECT_EQ(here.st_ino, there.st_ino);
  EXPECT_EQ(here.st_mode & 0222U, 0U);
}

TEST_F(PosixVfsTest, AFileHasOneIdUnderAllItsNames) {
  const auto id_of = [&](const char* name) {
    return vfs_->open_read(name, Access::kBuffered).value()->id();
  };
  ASSERT_TRUE(write_new_file(*vfs_, "file", "text"));
  ASSERT_TRUE(write_new_file(*vfs_, "other", "text"));
  ASSERT_TRUE(vfs_->link_file("file", "name"));
  ASSERT_TRUE(id_of("file"));
  EXPECT_EQ(id_of("file"), id_of("name"));
  EXPECT_NE(id_of("file"), id_of("other"));
  const auto before = id_of("other");
  const auto later = std::filesystem::file_time_type::clock::now() + std::chrono::hours(1);
  std::filesystem::last_write_time(dir_.path() / "other", later);
  EXPECT_NE(before, id_of("other")) << "its number may have been given to another file";
}

TEST(MakeDurableDirectories, MakesWhatIsMissingAndAcceptsWhatIsThere) {
  const ScopedDir dir;
  EXPECT_TRUE(make_durable_directories(dir.path() / "a" / "b" / "c"));
  EXPECT_TRUE(make_durable_directories(dir.path() / "a" / "b" / "c"));
  EXPECT_TRUE(make_durable_directories(dir.path() / "a" / "d" / ""));
  EXPECT_TRUE(std::filesystem::is_directory(dir.path() / "a" / "b" / "c"));
  EXPECT_TRUE(std::filesystem::is_directory(dir.path() / "a" / "d"));
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

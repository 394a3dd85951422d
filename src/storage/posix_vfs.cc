#include "storage/posix_vfs.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <tuple>

#include "base/try.h"
#include "storage/beneath.h"
#include "storage/directory_listing.h"
#include "storage/os_error.h"
#include "storage/posix_file.h"
#include "storage/sync_directory.h"
#include "storage/vfs_name.h"

namespace deepfreeze {
namespace {

// The directory that holds a name, and the name in it.
struct Located {
  UniqueFd owned;  // invalid if the directory is the root
  int directory;
  std::string leaf;
};

class PosixVfs final : public Vfs {
 public:
  PosixVfs(UniqueFd root, std::string path, dev_t device)
      : root_(std::move(root)), path_(std::move(path)), device_(device) {}

  Result<std::unique_ptr<File>> create(std::string_view name, Access access) override;
  Result<std::unique_ptr<File>> open_read(std::string_view name, Access access) override;
  Status make_dir(std::string_view name) override;
  Status rename_no_replace(std::string_view from, std::string_view to) override;
  Status rename_replacing(std::string_view from, std::string_view to) override;
  Status link_file(std::string_view from, std::string_view to) override;
  Status link_open_file(const File& file, std::string_view to) override;
  Status remove_file(std::string_view name) override { return remove(name, 0); }
  Status remove_dir(std::string_view name) override { return remove(name, AT_REMOVEDIR); }
  Status sync_dir(std::string_view name) override;
  Result<std::vector<DirEntry>> list(std::string_view name) override;
  Result<Stamp> stamp(std::string_view name) override;
  [[nodiscard]] std::string path_of(std::string_view name) const override;
  Result<bool> is_in_place() override;
  Status reopen() override;
  Status make_root() override;
  Status check_writable() override;

 private:
  [[nodiscard]] Result<UniqueFd> open(std::string_view operation, std::string_view name, int flags,
                                      mode_t mode = 0);
  [[nodiscard]] Result<UniqueFd> open_directory(std::string_view operation, std::string_view name);
  [[nodiscard]] Result<Located> locate(std::string_view operation, std::string_view name);
  [[nodiscard]] Status protect_linked(int fd, const Located& target, std::string_view to) const;
  [[nodiscard]] Status remove(std::string_view name, int flags);

  UniqueFd root_;
  std::string path_;
  dev_t device_;  // of the first root, or the one made last
};

std::string PosixVfs::path_of(std::string_view name) const {
  if (name.empty()) return path_;
  return path_ + (path_.ends_with('/') ? "" : "/") + std::string(name);
}

Result<UniqueFd> PosixVfs::open(std::string_view operation, std::string_view name, int flags,
                                mode_t mode) {
  const std::string text(name);
  UniqueFd fd = open_beneath({.root_fd = root_.get(), .name = text, .flags = flags, .mode = mode});
  if (!fd.valid()) return os_fail(operation, path_of(name), errno);
  return fd;
}

Result<UniqueFd> PosixVfs::open_directory(std::string_view operation, std::string_view name) {
  if (!name.empty()) DF_TRY_VOID(check_vfs_name(operation, name));
  return open(operation, name, O_RDONLY | O_DIRECTORY);
}

Result<Located> PosixVfs::locate(std::string_view operation, std::string_view name) {
  DF_TRY_VOID(check_vfs_name(operation, name));
  const SplitName split = split_vfs_name(name);
  const std::string leaf(split.leaf);
  if (split.parent.empty()) return Located{.owned = {}, .directory = root_.get(), .leaf = leaf};
  DF_TRY(UniqueFd parent, open(operation, split.parent, O_PATH | O_DIRECTORY));
  const int directory = parent.get();
  return Located{.owned = std::move(parent), .directory = directory, .leaf = leaf};
}

Result<std::unique_ptr<File>> PosixVfs::create(std::string_view name, Access access) {
  DF_TRY_VOID(check_vfs_name("create", name));
  DF_TRY(UniqueFd fd, open("create", name, O_RDWR | O_CREAT | O_EXCL, kFileMode));
  return make_posix_file(std::move(fd), path_of(name), access);
}

Result<std::unique_ptr<File>> PosixVfs::open_read(std::string_view name, Access access) {
  DF_TRY_VOID(check_vfs_name("open", name));
  // Not blocking, because a planted FIFO would hold us for ever; files don't mind.
  DF_TRY(UniqueFd fd, open("open", name, O_RDONLY | O_NONBLOCK | O_NOCTTY));
  struct stat status = {};
  if (::fstat(fd.get(), &status) != 0) return os_fail("open", path_of(name), errno);
  if (S_ISDIR(status.st_mode)) return os_fail("open", path_of(name), EISDIR);
  if (!S_ISREG(status.st_mode)) {
    return fail(ErrorCode::kIo, "open " + path_of(name) + ": not a regular file");
  }
  return make_posix_file(std::move(fd), path_of(name), access);
}

Status PosixVfs::make_dir(std::string_view name) {
  DF_TRY(const Located at, locate("mkdir", name));
  if (::mkdirat(at.directory, at.leaf.c_str(), kDirectoryMode) == 0) return {};
  return os_fail("mkdir", path_of(name), errno);
}

// For file systems without RENAME_NOREPLACE (NFS, some FUSE): link() never replaces either.
// In between both names exist; a name that is there is always the whole file.
int link_and_unlink(const Located& from, const Located& to) {
  if (::linkat(from.directory, from.leaf.c_str(), to.directory, to.leaf.c_str(), 0) != 0) {
    return errno;
  }
  return ::unlinkat(from.directory, from.leaf.c_str(), 0) == 0 ? 0 : errno;
}

int rename_exclusively(const Located& from, const Located& to) {
  if (::renameat2(from.directory, from.leaf.c_str(), to.directory, to.leaf.c_str(),
                  RENAME_NOREPLACE) == 0) {
    return 0;
  }
  const int cause = errno;
  const bool refused = cause == EINVAL || cause == ENOSYS || cause == EOPNOTSUPP;
  return refused ? link_and_unlink(from, to) : cause;
}

Status PosixVfs::rename_no_replace(std::string_view from, std::string_view to) {
  DF_TRY(const Located source, locate("rename", from));
  DF_TRY(const Located target, locate("rename", to));
  const int cause = rename_exclusively(source, target);
  if (cause == 0) return {};
  return os_fail("rename", path_of(from) + " to " + path_of(to), cause);
}

Status PosixVfs::rename_replacing(std::string_view from, std::string_view to) {
  DF_TRY(const Located source, locate("rename", from));
  DF_TRY(const Located target, locate("rename", to));
  const int failed =
      ::renameat(source.directory, source.leaf.c_str(), target.directory, target.leaf.c_str());
  if (failed == 0) return {};
  return os_fail("rename", path_of(from) + " to " + path_of(to), errno);
}

// The answers of file systems without hard links, with too many of one file, and of kernels that
// guard other users' files.
bool refuses_links(int cause) {
  return cause == EPERM || cause == EACCES || cause == EOPNOTSUPP || cause == ENOSYS ||
         cause == EXDEV || cause == EMLINK || cause == EROFS;
}

std::unexpected<Error> link_failed(int cause, const std::string& place) {
  auto failed = os_fail("link", place, cause);
  if (!refuses_links(cause)) return failed;
  return fail(ErrorCode::kUnsupported, failed.error().message(), cause);
}

// 0, or an errno.
int take_write_permission(int fd) {
  struct stat status = {};
  if (::fstat(fd, &status) != 0) return errno;
  if (!S_ISREG(status.st_mode)) return EPERM;
  constexpr mode_t kAnyWrite = S_IWUSR | S_IWGRP | S_IWOTH;
  if ((status.st_mode & kAnyWrite) == 0) return 0;
  return ::fchmod(fd, status.st_mode & ~kAnyWrite & 07777) == 0 ? 0 : errno;
}

// The new name goes again if the file stays writable: a program that writes to it would change it
// under both names.
Status PosixVfs::protect_linked(int fd, const Located& target, std::string_view to) const {
  const int cause = take_write_permission(fd);
  if (cause == 0) return {};
  std::ignore = ::unlinkat(target.directory, target.leaf.c_str(), 0);
  return link_failed(cause, path_of(to));
}

Status PosixVfs::link_file(std::string_view from, std::string_view to) {
  DF_TRY(const Located source, locate("link", from));
  DF_TRY(const Located target, locate("link", to));
  DF_TRY(const UniqueFd fd, open("link", from, O_RDONLY | O_NONBLOCK | O_NOCTTY));
  if (::linkat(source.directory, source.leaf.c_str(), target.directory, target.leaf.c_str(), 0) !=
      0) {
    return link_failed(errno, path_of(from) + " to " + path_of(to));
  }
  return protect_linked(fd.get(), target, to);
}

// The link goes by way of /proc, because the file has no name below this root.
Status PosixVfs::link_open_file(const File& file, std::string_view to) {
  DF_TRY(const Located target, locate("link", to));
  const auto fd = file.native_fd();
  if (!fd) return Vfs::link_open_file(file, to);
  const std::string source = "/proc/self/fd/" + std::to_string(*fd);
  // Somebody may have copied the file here, and its data may be in the page cache alone.
  if (::fdatasync(*fd) != 0) return os_fail("sync", source, errno);
  if (::linkat(AT_FDCWD, source.c_str(), target.directory, target.leaf.c_str(),
               AT_SYMLINK_FOLLOW) != 0) {
    const int cause = errno;
    const bool has_no_proc = cause == ENOENT && ::access(source.c_str(), F_OK) != 0;
    return link_failed(has_no_proc ? ENOSYS : cause, path_of(to));
  }
  return protect_linked(*fd, target, to);
}

Status PosixVfs::remove(std::string_view name, int flags) {
  DF_TRY(const Located at, locate("remove", name));
  if (::unlinkat(at.directory, at.leaf.c_str(), flags) == 0) return {};
  return os_fail("remove", path_of(name), errno);
}

Status PosixVfs::sync_dir(std::string_view name) {
  DF_TRY(const UniqueFd fd, open_directory("sync directory", name));
  return sync_directory(fd.get(), path_of(name));
}

Result<std::vector<DirEntry>> PosixVfs::list(std::string_view name) {
  DF_TRY(UniqueFd fd, open_directory("list", name));
  return list_directory(std::move(fd), path_of(name));
}

// One call of the kernel: a catalogue asks for the stamps of a hundred thousand files.
Result<Stamp> PosixVfs::stamp(std::string_view name) {
  if (!name.empty()) DF_TRY_VOID(check_vfs_name("look at", name));
  struct stat status = {};
  if (::fstatat(root_.get(), std::string(name).c_str(), &status,
                AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) != 0) {
    return os_fail("look at", path_of(name), errno);
  }
  constexpr std::int64_t kNanos = 1'000'000'000;
  return Stamp{.inode = status.st_ino,
               .bytes = static_cast<std::uint64_t>(status.st_size),
               .changed_nanos = status.st_ctim.tv_sec * kNanos + status.st_ctim.tv_nsec};
}

Result<UniqueFd> open_root(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (fd.valid()) return fd;
  const int cause = errno;
  auto failed = os_fail("open", path, cause);
  if (cause != ENOTDIR) return failed;
  return fail(ErrorCode::kNotFound, failed.error().message(), cause);
}

Result<bool> PosixVfs::is_in_place() {
  struct stat held = {};
  struct stat named = {};
  if (::stat(path_.c_str(), &named) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return false;
    return os_fail("look at", path_, errno);
  }
  // A file server says so of a directory that was deleted on another machine.
  if (::fstat(root_.get(), &held) != 0 && errno == ESTALE) return false;
  return held.st_dev == named.st_dev && held.st_ino == named.st_ino;
}

Status PosixVfs::reopen() {
  DF_TRY(root_, open_root(path_));
  return {};
}

// The device of the directory itself, or of the nearest existing directory above it.
Result<dev_t> device_of_place(std::filesystem::path place) {
  struct stat status = {};
  while (::stat(place.c_str(), &status) != 0) {
    if (errno != ENOENT || place == place.parent_path()) {
      return os_fail("look at", place.string(), errno);
    }
    place = place.parent_path();
  }
  return status.st_dev;
}

Status PosixVfs::make_root() {
  DF_TRY(const dev_t device, device_of_place(path_));
  if (device != device_) {
    return fail(ErrorCode::kIo, path_ + " was on another file system, which is not mounted now");
  }
  DF_TRY_VOID(make_durable_directories(path_));
  return reopen();
}

// The process's effective rights. With no difference to the real ones the plain call is enough,
// which no sandbox forbids.
Status PosixVfs::check_writable() {
  const bool is_plain = ::getuid() == ::geteuid() && ::getgid() == ::getegid();
  const int flags = is_plain ? 0 : AT_EACCESS;
  if (::faccessat(AT_FDCWD, path_.c_str(), W_OK | X_OK, flags) == 0) return {};
  return os_fail("write in", path_, errno);
}

}  // namespace

Result<std::unique_ptr<Vfs>> open_posix_vfs(const std::filesystem::path& root) {
  DF_TRY(UniqueFd fd, open_root(root.string()));
  struct stat status = {};
  if (::fstat(fd.get(), &status) != 0) return os_fail("open", root.string(), errno);
  return std::make_unique<PosixVfs>(std::move(fd), root.string(), status.st_dev);
}

}  // namespace deepfreeze

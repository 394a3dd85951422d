#include "storage/posix_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "base/log.h"
#include "base/try.h"
#include "storage/os_error.h"

namespace deepfreeze {
namespace {

constexpr std::uint64_t kDirectAlignment = 4096;  // the alignment that Access promises the kernel

// Set on the open file rather than in open(): open(O_CREAT | O_DIRECT) may make the file and
// then refuse, which leaves a taken name behind.
Access try_direct(int fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  const bool direct = flags >= 0 && ::fcntl(fd, F_SETFL, flags | O_DIRECT) == 0;
  return direct ? Access::kDirect : Access::kBuffered;
}

std::int64_t micros_of(const timespec& time) {
  return std::int64_t{time.tv_sec} * 1'000'000 + time.tv_nsec / 1000;
}

class PosixFile final : public File {
 public:
  PosixFile(UniqueFd fd, std::string path, Access access)
      : fd_(std::move(fd)), path_(std::move(path)), access_(access) {}

  Status write_at(std::uint64_t offset, std::span<const std::byte> bytes) override;
  Result<std::size_t> read_at(std::uint64_t offset, std::span<std::byte> into) override;
  Status preallocate(std::uint64_t bytes) override;
  Status truncate(std::uint64_t bytes) override;
  Result<std::uint64_t> size() override;
  Status sync() override;
  Status close() override;
  [[nodiscard]] Access access() const override { return access_.load(std::memory_order_relaxed); }
  Status flush_range(std::uint64_t offset, std::uint64_t bytes) override;
  Result<std::int64_t> modified_micros() override;
  [[nodiscard]] std::optional<FileId> id() override;
  [[nodiscard]] std::optional<int> native_fd() const override { return fd_.get(); }

 private:
  [[nodiscard]] std::string place(std::uint64_t offset) const {
    return fmt::format("{} at {}", path_, offset);
  }
  [[nodiscard]] Result<bool> ends_before(std::uint64_t offset);
  [[nodiscard]] bool go_buffered();

  UniqueFd fd_;
  std::string path_;
  std::atomic<Access> access_;  // relaxed: the kernel's own flag orders the writes
};

bool is_aligned(std::uint64_t offset, std::span<const std::byte> bytes) {
  return (offset | reinterpret_cast<std::uintptr_t>(bytes.data()) | bytes.size()) %
             kDirectAlignment ==
         0;
}

Status PosixFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const bool may_refuse = access() == Access::kDirect && is_aligned(offset, bytes);
    const ssize_t count =
        ::pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EINVAL && may_refuse && go_buffered()) continue;
    if (count < 0) return os_fail("write", place(offset), errno);
    if (count == 0) return os_fail("write", place(offset), EIO);  // or we would try for ever
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    offset += static_cast<std::uint64_t>(count);
  }
  return {};
}

// Some file systems take O_DIRECT when a file is opened and refuse to write or to read so, or want
// more than whole pages.
bool PosixFile::go_buffered() {
  const int flags = ::fcntl(fd_.get(), F_GETFL);
  if (flags < 0 || ::fcntl(fd_.get(), F_SETFL, flags & ~O_DIRECT) != 0) {
    errno = EINVAL;  // the error of the write or read that was refused
    return false;
  }
  access_.store(Access::kBuffered, std::memory_order_relaxed);
  static std::atomic<bool> told{false};  // once a process, not once a file
  if (!told.exchange(true, std::memory_order_relaxed)) {
    log_warning(path_ + " refuses direct access: it goes through the page cache, more slowly");
  }
  return true;
}

Result<std::size_t> PosixFile::read_at(std::uint64_t offset, std::span<std::byte> into) {
  std::size_t done = 0;
  while (done < into.size()) {
    const bool may_refuse =
        access() == Access::kDirect && is_aligned(offset + done, into.subspan(done));
    const ssize_t count = ::pread(fd_.get(), into.data() + done, into.size() - done,
                                  static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EINVAL && may_refuse && go_buffered()) continue;
    if (count < 0) return os_fail("read", place(offset + done), errno);
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
    // A direct read that stopped at an odd end of file can't be continued: it is not aligned.
    if (access() == Access::kDirect && done < into.size()) {
      DF_TRY(const bool ended, ends_before(offset + done));
      if (ended) break;
    }
  }
  return done;
}

Result<bool> PosixFile::ends_before(std::uint64_t offset) {
  DF_TRY(const std::uint64_t bytes, size());
  return bytes <= offset;
}

Status PosixFile::preallocate(std::uint64_t bytes) {
  if (bytes == 0) return {};
  int failed = 0;
  do {
    failed = ::fallocate(fd_.get(), FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(bytes));
  } while (failed != 0 && errno == EINTR);
  // Without it a full disk shows later, at a write; nothing else changes.
  if (failed == 0 || errno == EOPNOTSUPP || errno == ENOSYS) return {};
  return os_fail("preallocate", fmt::format("{} to {}", path_, bytes), errno);
}

Status PosixFile::truncate(std::uint64_t bytes) {
  int failed = 0;
  do {
    failed = ::ftruncate(fd_.get(), static_cast<off_t>(bytes));
  } while (failed != 0 && errno == EINTR);
  if (failed == 0) return {};
  return os_fail("truncate", fmt::format("{} to {}", path_, bytes), errno);
}

Result<std::uint64_t> PosixFile::size() {
  struct stat status = {};
  if (::fstat(fd_.get(), &status) != 0) return os_fail("stat", path_, errno);
  return static_cast<std::uint64_t>(status.st_size);
}

// fdatasync is enough for a new file too: its size and its blocks' places are needed to read the
// data, so they go with it; only times may stay behind. Never repeated, not even after EINTR:
// a failed sync marks pages clean, and the next one would report success for lost data.
Status PosixFile::sync() {
  if (::fdatasync(fd_.get()) == 0) return {};
  return os_fail("sync", path_, errno);
}

// Waits, because only clean pages can be dropped. If the kernel does not offer the call, it writes
// the pages in its own time; any other failure is an error of the device, which sync() would not
// report again.
Status PosixFile::flush_range(std::uint64_t offset, std::uint64_t bytes) {
  if (access() == Access::kDirect) return {};
  const auto begin = static_cast<off_t>(offset);
  const auto count = static_cast<off_t>(bytes);
  constexpr unsigned kWriteAndWait =
      SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
  if (::sync_file_range(fd_.get(), begin, count, kWriteAndWait) == 0) {
    ::posix_fadvise(fd_.get(), begin, count, POSIX_FADV_DONTNEED);  // advice: it can't fail us
    return {};
  }
  if (errno == ENOSYS || errno == EPERM || errno == EINVAL || errno == ESPIPE) return {};
  return os_fail("flush", place(offset), errno);
}

Result<std::int64_t> PosixFile::modified_micros() {
  struct stat status = {};
  if (::fstat(fd_.get(), &status) != 0) return os_fail("stat", path_, errno);
  return micros_of(status.st_mtim);
}

std::optional<FileId> PosixFile::id() {
  struct stat status = {};
  if (::fstat(fd_.get(), &status) != 0) return std::nullopt;
  return FileId{.device = status.st_dev,
                .number = status.st_ino,
                .modified_micros = micros_of(status.st_mtim)};
}

Status PosixFile::close() {
  auto closed = fd_.close();
  if (closed) return {};
  return os_fail("close", path_, closed.error().os_errno());
}

}  // namespace

std::unique_ptr<File> make_posix_file(UniqueFd fd, std::string path, Access wanted) {
  const Access access = wanted == Access::kDirect ? try_direct(fd.get()) : Access::kBuffered;
  return std::make_unique<PosixFile>(std::move(fd), std::move(path), access);
}

}  // namespace deepfreeze

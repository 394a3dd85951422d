#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/try.h"
#include "storage/os_error.h"
#include "support/sim_disk.h"

namespace deepfreeze {
namespace {

constexpr std::uint64_t kDirectAlignment = 4096;
constexpr std::uint64_t kSimFileBytesMax = 1ULL << 30;  // it is all in memory, several times

bool is_aligned(std::uint64_t offset, const void* address, std::size_t bytes) {
  return (offset | reinterpret_cast<std::uintptr_t>(address) | bytes) % kDirectAlignment == 0;
}

}  // namespace

class SimFile final : public File {
 public:
  struct Opened {
    SimDisk& disk;
    InodeId inode;
    std::string name;
    Access access;
    bool writable;
  };
  explicit SimFile(Opened opened) : open_(std::move(opened)) {}
  SimFile(const SimFile&) = delete;
  SimFile& operator=(const SimFile&) = delete;
  ~SimFile() override {
    const std::lock_guard lock(open_.disk.mutex_);
    count_closed();
  }

  Status write_at(std::uint64_t offset, std::span<const std::byte> bytes) override;
  Result<std::size_t> read_at(std::uint64_t offset, std::span<std::byte> into) override;
  Status preallocate(std::uint64_t bytes) override;
  Status truncate(std::uint64_t bytes) override;
  Result<std::uint64_t> size() override;
  Status sync() override;
  Status close() override;
  [[nodiscard]] Access access() const override { return open_.access; }
  [[nodiscard]] std::optional<FileId> id() override {
    return FileId{.device = 1, .number = open_.inode, .modified_micros = 0};
  }
  [[nodiscard]] const Opened& opened() const { return open_; }

 private:
  // All below: the disk's mutex is held.
  [[nodiscard]] SimInode& node() { return open_.disk.seen_.at(open_.inode); }
  [[nodiscard]] std::unexpected<Error> failed(std::string_view operation, int cause) const {
    return os_fail(operation, open_.disk.path_of(open_.name), cause);
  }
  [[nodiscard]] Status check_usable(std::string_view operation) const;
  [[nodiscard]] Status begin_change(SimOperationKind kind, std::uint64_t end);
  void count_closed();

  Opened open_;
  bool closed_ = false;
};

Status SimFile::check_usable(std::string_view operation) const {
  DF_TRY_VOID(open_.disk.check_power(operation, open_.name));
  if (closed_) return failed(operation, EBADF);
  return {};
}

Status SimFile::begin_change(SimOperationKind kind, std::uint64_t end) {
  DF_TRY_VOID(check_usable(to_string(kind)));
  DF_TRY_VOID(open_.disk.begin(kind, open_.name));
  if (!open_.writable) return failed(to_string(kind), EBADF);
  if (end > kSimFileBytesMax) return failed(to_string(kind), EFBIG);
  return {};
}

Status SimFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
  if (bytes.empty()) return {};
  const std::lock_guard lock(open_.disk.mutex_);
  DF_TRY_VOID(begin_change(SimOperationKind::kWrite, std::max(offset, offset + bytes.size())));
  if (open_.access == Access::kDirect && !is_aligned(offset, bytes.data(), bytes.size())) {
    return failed("write", EINVAL);
  }
  const std::uint64_t end = offset + bytes.size();
  const std::uint64_t reached = open_.disk.reserve(open_.inode, end);
  const std::uint64_t count = reached - std::min(reached, offset);
  if (count > 0) {
    std::string data(reinterpret_cast<const char*>(bytes.data()), count);
    open_.disk.change({.what = SimWrite{open_.inode, offset, std::move(data)}});
    open_.disk.bytes_written_ += count;
  }
  if (reached < end) return failed("write", ENOSPC);
  return open_.disk.end();
}

Result<std::size_t> SimFile::read_at(std::uint64_t offset, std::span<std::byte> into) {
  const std::lock_guard lock(open_.disk.mutex_);
  DF_TRY_VOID(check_usable("read"));
  DF_TRY_VOID(open_.disk.begin_read("read", open_.name));
  if (open_.access == Access::kDirect && !is_aligned(offset, into.data(), into.size())) {
    return failed("read", EINVAL);
  }
  const std::string& content = node().content;
  if (into.empty() || offset >= content.size()) return 0;
  const std::size_t count = std::min(into.size(), content.size() - offset);
  std::memcpy(into.data(), content.data() + offset, count);
  return count;
}

Status SimFile::preallocate(std::uint64_t bytes) {
  const std::lock_guard lock(open_.disk.mutex_);
  DF_TRY_VOID(begin_change(SimOperationKind::kPreallocate, bytes));
  if (open_.disk.reserve(open_.inode, bytes) < bytes) return failed("preallocate", ENOSPC);
  return open_.disk.end();
}

Status SimFile::truncate(std::uint64_t bytes) {
  const std::lock_guard lock(open_.disk.mutex_);
  DF_TRY_VOID(begin_change(SimOperationKind::kTruncate, bytes));
  open_.disk.release_beyond(open_.inode, bytes);
  open_.disk.change({.what = SimTruncate{open_.inode, bytes}});
  return open_.disk.end();
}

Result<std::uint64_t> SimFile::size() {
  const std::lock_guard lock(open_.disk.mutex_);
  DF_TRY_VOID(check_usable("stat"));
  DF_TRY_VOID(open_.disk.begin_read("stat", open_.name));
  return node().content.size();
}

Status SimFile::sync() {
  const std::lock_guard lock(open_.disk.mutex_);
  DF_TRY_VOID(check_usable("sync"));
  return open_.disk.sync(open_.inode, open_.name);
}

Status SimDisk::sync(InodeId inode, std::string_view name) {
  if (auto begun = begin(SimOperationKind::kSync, name); !begun) {
    sync_failed_.insert(inode);
    return begun;
  }
  // After one failure a kernel has marked the pages clean: later syncs succeed and do nothing.
  if (sync_failed_.contains(inode) || takes_ignored_sync()) return {};
  make_durable([inode](const SimChange& pending) { return changes_data_of(pending, inode); });
  return end();
}

// Another disk is another file system.
Status SimDisk::link_open_file(const File& file, std::string_view to) {
  const auto* source = dynamic_cast<const SimFile*>(&file);
  if (source == nullptr || &source->opened().disk != this) return Vfs::link_open_file(file, to);
  DF_TRY_VOID(check_vfs_name("link", to));
  const SimFile::Opened& opened = source->opened();
  const std::lock_guard lock(mutex_);
  DF_TRY_VOID(sync(opened.inode, opened.name));
  DF_TRY_VOID(begin(SimOperationKind::kLink, opened.name, to));
  const std::string where = path_of(opened.name) + " to " + path_of(to);
  if (names_of(opened.inode) == 0) return os_fail("link", where, ENOENT);
  return link(opened.inode, where, to);
}

Status SimFile::close() {
  const std::lock_guard lock(open_.disk.mutex_);
  auto usable = check_usable("close");
  count_closed();
  return usable;
}

void SimFile::count_closed() {
  if (!closed_) --open_.disk.open_files_;
  closed_ = true;
}

std::unique_ptr<File> SimDisk::open(std::string_view name, InodeId inode, Access access,
                                    bool writable) {
  ++open_files_;
  const Access given = direct_refused_ ? Access::kBuffered : access;
  return std::make_unique<SimFile>(
      SimFile::Opened{*this, inode, std::string(name), given, writable});
}

std::uint64_t SimDisk::reserve(InodeId inode, std::uint64_t end) {
  std::uint64_t& reserved = reserved_[inode];
  if (end <= reserved) return end;
  const std::uint64_t growth = std::min(end - reserved, bytes_free_);
  bytes_free_ -= growth;
  reserved += growth;
  return reserved;
}

void SimDisk::release_beyond(InodeId inode, std::uint64_t end) {
  std::uint64_t& reserved = reserved_[inode];
  const std::uint64_t freed = reserved - std::min(reserved, end);
  bytes_free_ += freed;
  reserved -= freed;
}

}  // namespace deepfreeze

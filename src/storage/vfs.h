// The one seam to a file system: every kernel call on a run's files goes through it, so that a
// simulated disk can stand in for the real one.
//
// Names are relative to the root, '/'-separated, each component is_safe_name-like; nothing
// outside the root, and no symbolic link, is ever followed. Any thread; a File belongs to its
// opener, but write_at/read_at of disjoint ranges may run on several threads.
// Errors name operation, full path and cause; ENOSPC/EDQUOT give kNoSpace, ENOENT kNotFound,
// EEXIST kExists, the rest kIo.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "deepfreeze/result.h"

namespace deepfreeze {

// How a file's bytes travel. Direct needs offset, size and address to be multiples of 4096.
enum class Access : std::uint8_t { kBuffered, kDirect };

// Tells a file from all others, by any of its names. The time is that of the last write: a number
// may be given again to a later file.
struct FileId {
  std::uint64_t device = 0;
  std::uint64_t number = 0;
  std::int64_t modified_micros = 0;
  auto operator<=>(const FileId&) const = default;
};

class File {
 public:
  virtual ~File() = default;
  // Writes all of `bytes`: short writes and EINTR are continued.
  [[nodiscard]] virtual Status write_at(std::uint64_t offset, std::span<const std::byte> bytes) = 0;
  // Reads until `into` is full or the file ends; the count tells which.
  [[nodiscard]] virtual Result<std::size_t> read_at(std::uint64_t offset,
                                                    std::span<std::byte> into) = 0;
  // Reserves space, so that a full disk shows before the writes. Size unchanged.
  [[nodiscard]] virtual Status preallocate(std::uint64_t bytes) = 0;
  [[nodiscard]] virtual Status truncate(std::uint64_t bytes) = 0;
  [[nodiscard]] virtual Result<std::uint64_t> size() = 0;
  // Makes the data durable, with the metadata needed to read it (fdatasync). After a failure the
  // file must be given up.
  [[nodiscard]] virtual Status sync() = 0;
  [[nodiscard]] virtual Status close() = 0;
  // Changes from direct to buffered if the file system refuses the first direct write.
  [[nodiscard]] virtual Access access() const = 0;
  // Sends a written range of a buffered file to the device and drops it from the page cache, so
  // that a large file does not push other programs' pages out. It is no sync: nothing is durable
  // after it. But its error counts as one of sync(), which may not report it a second time.
  [[nodiscard]] virtual Status flush_range(std::uint64_t /*offset*/, std::uint64_t /*bytes*/) {
    return {};
  }
  // The time of the last write, in microseconds since 1970-01-01 UTC by the file system's clock.
  // kUnsupported if no clock is kept.
  [[nodiscard]] virtual Result<std::int64_t> modified_micros();
  // Nothing if the place does not tell.
  [[nodiscard]] virtual std::optional<FileId> id() { return std::nullopt; }
  // The CRC-32C of the whole file that the place itself kept beside it when it was opened; nothing
  // if the place keeps none, as file systems do.
  [[nodiscard]] virtual std::optional<std::uint32_t> kept_crc32c() const { return std::nullopt; }
  // Whether the file is whole, as far as that shows without its data: for files whose size() is not
  // that of the bytes that lie there. kCorrupt.
  [[nodiscard]] virtual Status check_whole() { return {}; }
  // The kernel's descriptor of the open file, for UringQueue; nothing if the file is not one of the
  // kernel's.
  [[nodiscard]] virtual std::optional<int> native_fd() const { return std::nullopt; }
};

struct DirEntry {
  std::string name;
  bool is_directory = false;
};

// Changes if the file is written, or if names in the directory are made or removed; and it differs
// between a file and its copy. Two changes within some milliseconds may give the same.
struct Stamp {
  std::uint64_t inode = 0;
  std::uint64_t bytes = 0;
  std::int64_t changed_nanos = 0;  // since 1970-01-01 UTC by the file system's clock
  bool operator==(const Stamp&) const = default;
};

class Vfs {
 public:
  virtual ~Vfs() = default;
  // A new file; kExists if the name is taken. Direct access falls back to buffered if the file
  // system refuses it: ask the file's access().
  [[nodiscard]] virtual Result<std::unique_ptr<File>> create(std::string_view name,
                                                             Access access) = 0;
  [[nodiscard]] virtual Result<std::unique_ptr<File>> open_read(std::string_view name,
                                                                Access access) = 0;
  [[nodiscard]] virtual Status make_dir(std::string_view name) = 0;  // kExists if it is there
  [[nodiscard]] virtual Status rename_no_replace(std::string_view from, std::string_view to) = 0;
  // Renames over a name that a file may have: a reader finds either the old file or the new one,
  // never neither. For files that may be lost, and for a record that does not verify.
  [[nodiscard]] virtual Status rename_replacing(std::string_view from, std::string_view to) = 0;
  // Gives a file one more name, `to`, and takes its write permission away, because a program that
  // writes to it would now change it under both names. kExists: `to` is taken. kUnsupported: the
  // place has no hard links, or no more for this file.
  [[nodiscard]] virtual Status link_file(std::string_view from, std::string_view to);
  // As above, for a file that is open in any Vfs of this kind, and whose data is synced first;
  // kUnsupported also if it lies on another file system.
  [[nodiscard]] virtual Status link_open_file(const File& file, std::string_view to);
  [[nodiscard]] virtual Status remove_file(std::string_view name) = 0;
  [[nodiscard]] virtual Status remove_dir(std::string_view name) = 0;
  // Makes the names inside a directory durable; "" is the root itself.
  [[nodiscard]] virtual Status sync_dir(std::string_view name) = 0;
  [[nodiscard]] virtual Result<std::vector<DirEntry>> list(std::string_view name) = 0;
  // kUnsupported: the place keeps none. "" is the root. Nothing is opened, and a directory that is
  // replaced by a symbolic link at this moment may be followed.
  [[nodiscard]] virtual Result<Stamp> stamp(std::string_view name);
  // The names below the root as they are at this moment, for a reader of many small files: of a
  // store that is far away one look costs a request for a thousand names, list() one for each
  // directory. Null if list() and open_read() cost no more. It may not outlive this Vfs.
  [[nodiscard]] virtual Result<std::unique_ptr<Vfs>> look() { return std::unique_ptr<Vfs>(); }
  // The full path, for messages.
  [[nodiscard]] virtual std::string path_of(std::string_view name) const = 0;

  // The root is held open, so it may have been deleted, moved or replaced since: false then.
  [[nodiscard]] virtual Result<bool> is_in_place() { return true; }
  // Makes the root the directory that its path names now; kNotFound if there is none. Nobody else
  // may use the Vfs during this call or the next.
  [[nodiscard]] virtual Status reopen() { return {}; }
  // Reopens the root as well, and first makes the directory durably if there is none. It never
  // makes one on another file system than the first root's: that file system may only be unmounted
  // for the moment.
  [[nodiscard]] virtual Status make_root() { return {}; }
  // Whether names can be made and removed in the root, as far as permissions and the mount tell.
  [[nodiscard]] virtual Status check_writable() { return {}; }
};

// Whole small files, buffered. read_file refuses more than `bytes_max` with kCorrupt.
[[nodiscard]] Result<std::string> read_file(Vfs& vfs, std::string_view name,
                                            std::uint64_t bytes_max);
// create + write + sync + close; no directory sync.
[[nodiscard]] Status write_new_file(Vfs& vfs, std::string_view name, std::string_view text);

}  // namespace deepfreeze

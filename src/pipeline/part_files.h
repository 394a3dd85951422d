// One rank's files while they are written: the part that is common to all writers, however these
// move the slabs.
//
// Owned by a PartWriter. A slab's way: admit(), then write_from() and settle() by any one thread;
// slabs overlap. finish() when all are settled.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "pipeline/busy_clock.h"
#include "pipeline/first_error.h"
#include "pipeline/part_writer.h"
#include "storage/vfs.h"

namespace deepfreeze {

class PartFiles {
 public:
  struct OpenFile {
    std::unique_ptr<File> file;
    std::string path;  // for messages
  };

  // Creates the files and reserves their space.
  [[nodiscard]] static Result<std::unique_ptr<PartFiles>> create(Vfs& vfs, PartSpec spec,
                                                                 Access access);
  PartFiles(PartSpec spec, std::vector<OpenFile> files);

  [[nodiscard]] std::size_t slab_count() const { return pushed_.size(); }
  // kDirect if any file began with direct access. A file that has come down to the page cache still
  // accepts direct access's aligned writes, which the others require.
  [[nodiscard]] Access access() const { return access_; }
  [[nodiscard]] bool have_native_fds() const {
    return files_.front().file->native_fd().has_value();
  }

  // The descriptor of the file that the slab belongs to.
  [[nodiscard]] std::optional<int> native_fd(std::size_t slab_index) const;

  // False: no slab of the image, or not the first time. The error is kept, nothing to settle.
  [[nodiscard]] bool admit(std::size_t slab_index);
  // The error that keeps a slab's write from starting, if there is one.
  [[nodiscard]] Status may_start() const;
  // The part of a slab that needs no special care in the file's mode of access, and its offset.
  [[nodiscard]] std::span<const std::byte> even_part(std::size_t slab_index) const;
  [[nodiscard]] std::uint64_t offset_of(std::size_t slab_index) const;
  // Writes a slab but for its first `done` bytes, which are in the file.
  [[nodiscard]] Status write_from(std::size_t slab_index, std::uint64_t done);
  // A failed system call as an error that names the slab's place.
  [[nodiscard]] Error write_failed(std::size_t slab_index, int os_errno) const;
  // Ends a slab's way: counts it or keeps its error, and frees its memory.
  void settle(std::size_t slab_index, const Status& written);

  [[nodiscard]] Status finish(const MakeHeader& make_header);
  void cancel();

  [[nodiscard]] std::uint64_t bytes_written() const {
    return bytes_written_.load(std::memory_order_relaxed);  // for display
  }
  [[nodiscard]] double write_seconds() const { return clock_.seconds(); }

 private:
  [[nodiscard]] std::size_t file_of(std::size_t slab_index) const;
  [[nodiscard]] Status finish_all(const MakeHeader& make_header);
  [[nodiscard]] Status check_all_came() const;
  [[nodiscard]] Status finish_data(std::size_t index);
  [[nodiscard]] Status finish_header(std::size_t index, const MakeHeader& make_header);
  [[nodiscard]] Status write_header(File& file, std::span<const std::byte> header);

  const PartSpec spec_;
  const std::vector<OpenFile> files_;  // of spec_.files, by index
  const Access access_;
  FirstError error_;
  BusyClock clock_;
  std::vector<std::atomic<bool>> pushed_;  // by slab
  std::atomic<std::size_t> slabs_written_{0};
  std::atomic<std::uint64_t> bytes_written_{0};
};

}  // namespace deepfreeze

// One rank's file while it is written, whoever moves its slabs: what is the same for all writers.
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

class PartFile {
 public:
  // Creates the file and reserves its space.
  [[nodiscard]] static Result<std::unique_ptr<PartFile>> create(Vfs& vfs, PartPlan plan,
                                                                Access access);
  PartFile(PartPlan plan, std::unique_ptr<File> file, std::string path);

  [[nodiscard]] std::size_t slab_count() const { return pushed_.size(); }
  [[nodiscard]] Access access() const { return file_->access(); }
  [[nodiscard]] std::optional<int> native_fd() const { return file_->native_fd(); }

  // False: no slab of this file, or not the first time. The error is kept, nothing to settle.
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
  // Ends a slab's way: counts it or keeps its error, and releases it.
  void settle(std::size_t slab_index, const Status& written);

  [[nodiscard]] Status finish(const MakeHeader& make_header);
  void cancel();

  [[nodiscard]] std::uint64_t bytes_written() const {
    return bytes_written_.load(std::memory_order_relaxed);  // for display
  }
  [[nodiscard]] double write_seconds() const { return clock_.seconds(); }

 private:
  [[nodiscard]] Status write_odd_end(std::uint64_t offset, std::span<const std::byte> bytes);
  [[nodiscard]] Status finish_data();
  [[nodiscard]] Status finish_header(const MakeHeader& make_header);
  [[nodiscard]] Status write_header(std::span<const std::byte> header);

  const PartPlan plan_;
  const std::unique_ptr<File> file_;
  const std::string path_;  // for messages
  FirstError error_;
  BusyClock clock_;
  std::vector<std::atomic<bool>> pushed_;  // by slab
  std::atomic<std::size_t> slabs_written_{0};
  std::atomic<std::uint64_t> bytes_written_{0};
};

}  // namespace deepfreeze

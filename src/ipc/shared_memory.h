// Owns memory that another process can map, too: a sealed memfd, which lives as long as any process
// has it open or mapped. Its size never changes. A forked child does not inherit the mapping.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include "base/unique_fd.h"
#include "deepfreeze/result.h"

namespace deepfreeze {

class SharedMemory {
 public:
  // Zero-filled; no page is touched yet. kNoSpace if the system refuses it.
  [[nodiscard]] static Result<SharedMemory> allocate(std::size_t bytes);
  // Maps all of it, from another process. kInvalidArgument unless it is sealed against changes of
  // its size: else an access could end this process.
  [[nodiscard]] static Result<SharedMemory> map(UniqueFd file);

  SharedMemory() = default;
  SharedMemory(SharedMemory&& other) noexcept
      : file_(std::move(other.file_)), bytes_(std::exchange(other.bytes_, {})) {}
  SharedMemory& operator=(SharedMemory&& other) noexcept {
    std::swap(file_, other.file_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~SharedMemory();

  // Takes all pages of `part` now, or all there are, in huge pages if the kernel has them to give.
  // kNoSpace if memory is refused.
  [[nodiscard]] Status populate(std::span<std::byte> part);
  [[nodiscard]] Status populate() { return populate(bytes_); }

  // For a secret: as long as this object is there, its pages go neither to swap nor into a core
  // file of this process. kNoSpace if the system locks no more memory (RLIMIT_MEMLOCK).
  [[nodiscard]] Status keep_secret();

  [[nodiscard]] std::span<std::byte> bytes() const { return bytes_; }
  [[nodiscard]] int fd() const { return file_.get(); }

 private:
  [[nodiscard]] Status map_all(std::size_t bytes);

  UniqueFd file_;
  std::span<std::byte> bytes_;
};

}  // namespace deepfreeze

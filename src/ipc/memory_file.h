// A file in memory that another process reads once this one is gone. It grows; its first page is
// mapped, so that a word of it can be set without a system call.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/unique_fd.h"
#include "deepfreeze/result.h"

namespace deepfreeze {

inline constexpr std::uint64_t kMemoryPageBytes = 4096;

class MemoryFile {
 public:
  // The first page is all zeros. kNoSpace if the system refuses it.
  [[nodiscard]] static Result<std::unique_ptr<MemoryFile>> make();
  MemoryFile(UniqueFd file, void* page) : file_(std::move(file)), page_(page) {}
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile();

  // Memory that is full is kNoSpace.
  [[nodiscard]] Status write_at(std::uint64_t at, std::span<const std::byte> bytes) const;
  [[nodiscard]] void* first_page() const { return page_; }
  [[nodiscard]] int fd() const { return file_.get(); }

 private:
  const UniqueFd file_;
  void* const page_;
};

// memfd_create() with these flags; never executable, which some systems demand.
[[nodiscard]] UniqueFd make_memory_fd(unsigned int flags);

// From any process that has it open. kCorrupt if it ends before.
[[nodiscard]] Result<std::vector<std::byte>> read_memory_file(int fd, std::uint64_t at,
                                                              std::uint64_t size);

}  // namespace deepfreeze

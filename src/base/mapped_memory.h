// Owns page-aligned anonymous memory that a forked child does not inherit.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include "deepfreeze/result.h"

namespace deepfreeze {

class MappedMemory {
 public:
  // Zero-filled, MADV_DONTFORK, in huge pages if the kernel gives them. No page is touched yet.
  [[nodiscard]] static Result<MappedMemory> allocate(std::size_t bytes);
  // Has `bytes` from now on, if it had fewer: those keep their contents and get another address.
  // kNoSpace if the system refuses it; then nothing has changed.
  [[nodiscard]] Status grow(std::size_t bytes);

  MappedMemory() = default;
  MappedMemory(MappedMemory&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  MappedMemory& operator=(MappedMemory&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~MappedMemory();

  [[nodiscard]] std::span<std::byte> bytes() const { return bytes_; }

 private:
  std::span<std::byte> bytes_;
};

}  // namespace deepfreeze

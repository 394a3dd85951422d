// Owns page-aligned anonymous memory that a forked child does not inherit.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include "deepfreeze/result.h"

namespace deepfreeze {

class MappedMemory {
 public:
  // Zero-filled, MADV_DONTFORK, huge pages where the kernel gives them. Not yet touched.
  [[nodiscard]] static Result<MappedMemory> allocate(std::size_t bytes);

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

// Memory that direct access takes: page-aligned, filled with a pattern that shows misplacement.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/mapped_memory.h"

namespace deepfreeze {

class AlignedBytes {
 public:
  explicit AlignedBytes(std::size_t bytes) : memory_(*MappedMemory::allocate(bytes)) {}

  [[nodiscard]] std::span<std::byte> bytes() const { return memory_.bytes(); }

  // Differs from page to page, not only within one.
  void fill_pattern() const {
    std::uint64_t state = 1;
    for (std::byte& byte : bytes()) {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      byte = static_cast<std::byte>(state >> 56);
    }
  }

 private:
  MappedMemory memory_;
};

}  // namespace deepfreeze

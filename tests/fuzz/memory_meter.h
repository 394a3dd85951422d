// Measures how much memory is allocated at once while it lives, so that a target can bound the
// parsers' memory by a multiple of their input. One at a time. Only the sanitizers can tell.
#pragma once

#include <cstddef>
#include <cstdint>

#include "deepfreeze/result.h"

namespace deepfreeze {

class MemoryMeter {
 public:
  MemoryMeter();
  ~MemoryMeter();
  MemoryMeter(const MemoryMeter&) = delete;
  MemoryMeter& operator=(const MemoryMeter&) = delete;

  // At most kFreeBytes, and `times_input` bytes for each byte of the input. Passes if nothing is
  // measured.
  [[nodiscard]] Status check(std::size_t input_bytes, std::uint64_t times_input = 64) const;

  static constexpr std::uint64_t kFreeBytes = 64 * 1024;
};

}  // namespace deepfreeze

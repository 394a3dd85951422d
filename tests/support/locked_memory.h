// Memory that this process has locked, as the kernel counts it.
#pragma once

#include <sys/mman.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>

namespace deepfreeze {

// In KiB; 0 if the kernel does not tell.
inline std::uint64_t locked_memory() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    std::uint64_t kib = 0;
    if (word == "VmLck:" && status >> kib) return kib;
  }
  return 0;
}

// False under AddressSanitizer, whose mlock() does nothing.
inline bool locks_memory() {
  alignas(4096) static std::array<std::byte, 4096> page;
  const std::uint64_t before = locked_memory();
  if (::mlock(page.data(), page.size()) != 0) return false;
  const bool is_locked = locked_memory() > before;
  ::munlock(page.data(), page.size());
  return is_locked;
}

}  // namespace deepfreeze

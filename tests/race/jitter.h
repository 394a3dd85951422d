// Delays at chosen points, so that threads meet in ever other orders. Seeded: each point of a
// replayed run waits as long as before.
#pragma once

#include <atomic>
#include <cstdint>
#include <random>
#include <thread>

namespace deepfreeze {

using Random = std::mt19937_64;

inline void spin(std::uint64_t turns) {
  for (std::uint64_t i = 0; i < turns; ++i) std::atomic_signal_fence(std::memory_order_seq_cst);
}

// Mostly nothing, sometimes a few instructions, a microsecond, or a yield of the core.
inline void jitter(std::uint64_t number) {
  switch (number % 16) {
    case 0:
      return std::this_thread::yield();
    case 1:
    case 2:
      return spin(number / 16 % 2'000);
    case 3:
    case 4:
    case 5:
      return spin(number / 16 % 60);
    default:
      return;
  }
}

}  // namespace deepfreeze

// Wall time for records, monotonic time for everything that is compared.
#pragma once

#include <chrono>
#include <cstdint>

namespace deepfreeze {

using Monotonic = std::chrono::steady_clock;

// Microseconds since 1970-01-01 UTC. For display only: never ordered by.
[[nodiscard]] std::int64_t wall_micros();

[[nodiscard]] inline double seconds_since(Monotonic::time_point start) {
  return std::chrono::duration<double>(Monotonic::now() - start).count();
}

[[nodiscard]] inline std::uint64_t nanos_since(Monotonic::time_point start) {
  const auto passed = std::chrono::nanoseconds(Monotonic::now() - start).count();
  return static_cast<std::uint64_t>(passed);
}

}  // namespace deepfreeze

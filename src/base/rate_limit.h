// Limits the bytes per second, counted from the start. Any thread may take; each waits for its own
// bytes.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>

#include "base/clock.h"

namespace deepfreeze {

class RateLimit {
 public:
  // Tests bring a clock and a sleep of their own.
  struct Time {
    std::function<Monotonic::time_point()> now;
    std::function<void(Monotonic::duration)> sleep;
  };
  // 0 bytes per second: no limit.
  explicit RateLimit(std::uint64_t bytes_per_second, Time time = real_time());
  [[nodiscard]] static Time real_time();

  // Returns once the rate allows them, or stop() was called; sleeps kSleepMax at a time.
  void take(std::uint64_t bytes);
  // From here on nobody waits any more. Any thread.
  void stop() { stopped_.store(true, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t taken() const;

 private:
  [[nodiscard]] Monotonic::time_point reserve(std::uint64_t bytes);

  const std::uint64_t bytes_per_second_;
  const Time time_;
  mutable std::mutex mutex_;
  std::uint64_t taken_ = 0;           // guarded by mutex_
  Monotonic::time_point due_{};       // guarded by mutex_: when all that was taken has passed
  std::atomic<bool> stopped_{false};  // relaxed: it only ends waits
};

inline constexpr std::chrono::milliseconds kSleepMax{100};
// Bounds how much time a device that was slower than the rate may catch up.
inline constexpr std::chrono::seconds kCatchUpMax{1};

}  // namespace deepfreeze

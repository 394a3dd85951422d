#include "base/rate_limit.h"

#include <algorithm>
#include <thread>
#include <utility>

namespace deepfreeze {

RateLimit::RateLimit(std::uint64_t bytes_per_second, Time time)
    : bytes_per_second_(bytes_per_second), time_(std::move(time)), due_(time_.now()) {}

RateLimit::Time RateLimit::real_time() {
  return {.now = Monotonic::now,
          .sleep = [](Monotonic::duration length) { std::this_thread::sleep_for(length); }};
}

std::uint64_t RateLimit::taken() const {
  const std::lock_guard lock(mutex_);
  return taken_;
}

// Paid in advance: whenever a pass ends, it has taken the time that its bytes are worth.
Monotonic::time_point RateLimit::reserve(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  taken_ += bytes;
  if (bytes_per_second_ == 0) return due_;
  const std::chrono::duration<double> worth(static_cast<double>(bytes) /
                                            static_cast<double>(bytes_per_second_));
  due_ = std::max(due_, time_.now() - kCatchUpMax) +
         std::chrono::duration_cast<Monotonic::duration>(worth);
  return due_;
}

void RateLimit::take(std::uint64_t bytes) {
  const Monotonic::time_point due = reserve(bytes);
  while (!stopped_.load(std::memory_order_relaxed)) {
    const Monotonic::duration left = due - time_.now();
    if (left <= Monotonic::duration::zero()) return;
    time_.sleep(std::min<Monotonic::duration>(left, kSleepMax));
  }
}

}  // namespace deepfreeze

// Waits for a change that nobody announces, such as another process's file: pauses grow, up to a
// deadline.
#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/clock.h"

namespace deepfreeze {

class Polling {
 public:
  explicit Polling(std::chrono::milliseconds deadline) : deadline_(deadline) {}

  // Sleeps for the next pause and returns true; returns false at once if the deadline has passed.
  [[nodiscard]] bool again() {
    const auto waited = Monotonic::now() - start_;
    if (waited >= deadline_) return false;
    std::this_thread::sleep_for(std::min<Monotonic::duration>(pause_, deadline_ - waited));
    pause_ = std::min(2 * pause_, kPauseMax);
    return true;
  }

 private:
  static constexpr std::chrono::milliseconds kPauseMax{100};

  const std::chrono::milliseconds deadline_;
  const Monotonic::time_point start_ = Monotonic::now();
  std::chrono::milliseconds pause_{1};
};

}  // namespace deepfreeze

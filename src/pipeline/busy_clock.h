// The time during which at least one of several overlapping operations was under way. Any thread.
#pragma once

#include <cstddef>
#include <mutex>

#include "base/clock.h"

namespace deepfreeze {

class BusyClock {
 public:
  void begin() {
    const std::lock_guard lock(mutex_);
    if (under_way_++ == 0) since_ = Monotonic::now();
  }
  void end() {
    const std::lock_guard lock(mutex_);
    if (--under_way_ == 0) seconds_ += seconds_since(since_);
  }
  [[nodiscard]] double seconds() const {
    const std::lock_guard lock(mutex_);
    return seconds_ + (under_way_ > 0 ? seconds_since(since_) : 0);
  }

 private:
  mutable std::mutex mutex_;  // guards all below
  std::size_t under_way_ = 0;
  Monotonic::time_point since_;
  double seconds_ = 0;
};

}  // namespace deepfreeze

// Keeps the first error of several threads, and tells the others to stop.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>

#include "deepfreeze/result.h"

namespace deepfreeze {

class FirstError {
 public:
  void set(const Error& error) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = error;
    // relaxed: the flag only saves work; a caller that needs the error itself takes the lock.
    is_set_.store(true, std::memory_order_relaxed);
  }
  [[nodiscard]] bool is_set() const { return is_set_.load(std::memory_order_relaxed); }
  [[nodiscard]] Status status() const {
    const std::lock_guard lock(mutex_);
    if (!error_) return {};
    return std::unexpected(*error_);
  }

 private:
  mutable std::mutex mutex_;
  std::optional<Error> error_;  // guarded by mutex_
  std::atomic<bool> is_set_{false};
};

}  // namespace deepfreeze

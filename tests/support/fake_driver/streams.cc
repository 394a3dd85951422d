#include "support/fake_driver/streams.h"

#include <chrono>
#include <utility>

namespace deepfreeze::fake_driver {

FakeStream::FakeStream(int on, bool blocking, bool is_held, Delays delays)
    : ordinal(on),
      is_blocking(blocking),
      is_held_(is_held),
      delays_(delays),
      random_(static_cast<std::minstd_rand::result_type>(delays.seed + 1)),
      thread_([this] { work(); }) {}

FakeStream::~FakeStream() {
  const std::lock_guard lock(mutex_);
  is_ending_ = true;
  is_held_ = false;
  changed_.notify_all();
}

void FakeStream::push(std::function<void()> operation) {
  const std::lock_guard lock(mutex_);
  operations_.push_back(std::move(operation));
  changed_.notify_all();
}

void FakeStream::hold() {
  const std::lock_guard lock(mutex_);
  is_held_ = true;
}

void FakeStream::let_go() {
  const std::lock_guard lock(mutex_);
  is_held_ = false;
  changed_.notify_all();
}

void FakeStream::finish() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return operations_.empty() && !is_busy_; });
}

void FakeStream::sleep_a_little() {
  if (delays_.micros_max == 0) return;
  std::uniform_int_distribution<unsigned> micros(0, delays_.micros_max);
  std::this_thread::sleep_for(std::chrono::microseconds(micros(random_)));
}

void FakeStream::work() {
  while (true) {
    std::function<void()> operation;
    {
      std::unique_lock lock(mutex_);
      is_busy_ = false;
      changed_.notify_all();
      changed_.wait(lock, [this] { return !is_held_ && (is_ending_ || !operations_.empty()); });
      if (operations_.empty()) return;
      operation = std::move(operations_.front());
      operations_.pop_front();
      is_busy_ = true;
    }
    sleep_a_little();
    operation();
  }
}

}  // namespace deepfreeze::fake_driver

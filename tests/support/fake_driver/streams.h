// Streams and events of the fake driver: threads, and the things they wait for.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <thread>

namespace deepfreeze::fake_driver {

// The progress of an event: the number recorded and the number reached.
class Progress {
 public:
  std::uint64_t record() {
    const std::lock_guard lock(mutex_);
    return ++recorded_;
  }
  [[nodiscard]] std::uint64_t recorded() {
    const std::lock_guard lock(mutex_);
    return recorded_;
  }
  void reach(std::uint64_t point) {
    const std::lock_guard lock(mutex_);
    reached_ = std::max(reached_, point);
    changed_.notify_all();
  }
  void wait(std::uint64_t point) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return reached_ >= point; });
  }

 private:
  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::uint64_t recorded_ = 0;
  std::uint64_t reached_ = 0;
};

struct Delays {
  std::uint64_t seed = 0;
  unsigned micros_max = 0;
};

class FakeStream {
 public:
  FakeStream(int ordinal, bool is_blocking, bool is_held, Delays delays);
  ~FakeStream();  // after it has done its work
  FakeStream(const FakeStream&) = delete;
  FakeStream& operator=(const FakeStream&) = delete;

  void push(std::function<void()> operation);
  void hold();
  void let_go();
  void finish();  // blocks until all that it was given is done
  // On its own thread.
  void sleep_a_little();

  const int ordinal;
  const bool is_blocking;          // ordered with the default stream
  int graph_mode = -1;             // of the capture that is under way; guarded by the driver's lock
  std::uint64_t graph_thread = 0;  // likewise: the thread that began it

 private:
  void work();

  std::mutex mutex_;  // guards the next five
  std::condition_variable changed_;
  std::deque<std::function<void()>> operations_;
  bool is_held_;
  bool is_ending_ = false;
  bool is_busy_ = false;
  const Delays delays_;
  std::minstd_rand random_;  // of its thread
  std::jthread thread_;      // last: it uses all above
};

}  // namespace deepfreeze::fake_driver

// A thread that stays and runs one errand after another: starting one for each of a hundred
// thousand sessions would take longer than the sessions.
#pragma once

#include <functional>
#include <thread>
#include <utility>

#include "base/bounded_queue.h"

namespace deepfreeze {

class ErrandThread {
 public:
  ErrandThread() : thread_([this] { work(); }) {}
  ErrandThread(const ErrandThread&) = delete;
  ErrandThread& operator=(const ErrandThread&) = delete;
  ~ErrandThread() { errands_.close(); }

  void run(std::function<void()> errand) {
    errands_.push(std::move(errand));
    ++given_;
  }
  // Until all that was given is done.
  void wait() {
    for (; given_ > 0; --given_) static_cast<void>(done_.pop());
  }

 private:
  static constexpr std::size_t kErrandsMax = 8;

  void work() {
    while (const auto errand = errands_.pop()) {
      (*errand)();
      done_.push(true);
    }
  }

  BoundedQueue<std::function<void()>> errands_{kErrandsMax};
  BoundedQueue<bool> done_{kErrandsMax};
  std::size_t given_ = 0;  // the owner's
  std::jthread thread_;    // last: it uses the queues
};

}  // namespace deepfreeze

#include "checksum_thread.h"

#include <sched.h>

#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/named_threads.h"

namespace deepfreeze {
namespace {

// Of the calling thread.
void set_idle() {
  const sched_param none{};
  if (::sched_setscheduler(0, SCHED_IDLE, &none) != 0) {
    log_warning("no idle priority for the thread that checksums: it runs at normal priority");
  }
}

}  // namespace

struct ChecksumThread::State {
  explicit State(ThreadPriority priority)
      : threads(start_threads(1, "df-checksum", [this, priority] { work(priority); })) {}

  void work(ThreadPriority priority);
  [[nodiscard]] std::shared_ptr<SlabChecksums> next();
  void stop();

  std::mutex mutex;                        // guards the next two
  std::shared_ptr<SlabChecksums> waiting;  // also held by its save
  bool stopping = false;
  std::condition_variable changed;
  std::vector<std::jthread> threads;  // last: they use all above
};

void ChecksumThread::State::work(ThreadPriority priority) {
  if (priority == ThreadPriority::kIdle) set_idle();
  while (const auto checksums = next()) checksums->help();
}

// Null once the thread is to stop.
std::shared_ptr<SlabChecksums> ChecksumThread::State::next() {
  std::unique_lock lock(mutex);
  changed.wait(lock, [this] { return stopping || waiting; });
  if (stopping) return nullptr;
  return std::exchange(waiting, nullptr);
}

void ChecksumThread::State::stop() {
  const std::lock_guard lock(mutex);
  stopping = true;
  changed.notify_all();
}

ChecksumThread::ChecksumThread(ThreadPriority priority)
    : state_(std::make_unique<State>(priority)) {}

ChecksumThread::~ChecksumThread() { state_->stop(); }

void ChecksumThread::offer(std::shared_ptr<SlabChecksums> checksums) {
  const std::lock_guard lock(state_->mutex);
  state_->waiting = std::move(checksums);
  state_->changed.notify_all();
}

}  // namespace deepfreeze

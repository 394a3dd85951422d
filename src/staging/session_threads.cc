#include "staging/session_threads.h"

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/named_threads.h"

namespace deepfreeze {

struct SessionThreads::State {
  explicit State(const std::vector<SessionRole>& roles);

  void work(void (*serve)(CaptureSession& session));
  [[nodiscard]] std::optional<CaptureSession> next(std::uint64_t& calls_seen);
  void stop();

  std::mutex mutex;                      // guards the next four
  std::optional<CaptureSession> served;  // while a thread has yet to begin with it
  std::uint64_t calls = 0;
  std::size_t unseen_by = 0;  // threads that have not begun with the newest call
  bool stopping = false;
  std::condition_variable changed;
  std::size_t thread_count = 0;
  std::vector<std::vector<std::jthread>> threads;  // by role; last: they use all above
};

SessionThreads::State::State(const std::vector<SessionRole>& roles) {
  threads.reserve(roles.size());  // once threads run, nothing may throw: nobody would stop them
  for (const SessionRole& role : roles) {
    threads.push_back(start_threads(role.thread_count, role.name,
                                    [this, work = role.work] { this->work(work); }));
    thread_count += threads.back().size();
  }
}

void SessionThreads::State::work(void (*serve)(CaptureSession& session)) {
  std::uint64_t calls_seen = 0;
  while (auto session = next(calls_seen)) serve(*session);
}

// The session last given to serve(), to each thread once for each call; empty once this stops.
std::optional<CaptureSession> SessionThreads::State::next(std::uint64_t& calls_seen) {
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return stopping || calls != calls_seen; });
  if (stopping) return std::nullopt;
  calls_seen = calls;
  if (--unseen_by > 0) return served;
  return std::exchange(served, std::nullopt);
}

void SessionThreads::State::stop() {
  const std::lock_guard lock(mutex);
  stopping = true;
  changed.notify_all();
}

SessionThreads::SessionThreads(const std::vector<SessionRole>& roles)
    : state_(std::make_unique<State>(roles)) {}

SessionThreads::~SessionThreads() { state_->stop(); }

bool SessionThreads::works() const {
  return std::ranges::none_of(state_->threads, &std::vector<std::jthread>::empty);
}

void SessionThreads::serve(const CaptureSession& session) {
  const std::lock_guard lock(state_->mutex);
  state_->served = session;
  state_->unseen_by = state_->thread_count;
  ++state_->calls;
  state_->changed.notify_all();
}

}  // namespace deepfreeze

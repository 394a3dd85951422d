#include "staging/background_copier.h"

#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/named_threads.h"

namespace deepfreeze {
struct BackgroundCopier::State {
  State() : threads(start_threads(1, "df-capture", [this] { work(); })) {}

  void work();
  [[nodiscard]] std::optional<CaptureSession> next();
  void stop();

  std::mutex mutex;  // guards the next two
  std::optional<CaptureSession> waiting;
  bool stopping = false;
  std::condition_variable changed;
  std::vector<std::jthread> threads;  // last: they use all above
};

void BackgroundCopier::State::work() {
  while (auto session = next()) session->help_in_background();
}

std::optional<CaptureSession> BackgroundCopier::State::next() {
  std::unique_lock lock(mutex);
  changed.wait(lock, [this] { return stopping || waiting; });
  if (stopping) return std::nullopt;
  std::optional<CaptureSession> session = std::move(waiting);
  waiting.reset();
  return session;
}

void BackgroundCopier::State::stop() {
  const std::lock_guard lock(mutex);
  stopping = true;
  changed.notify_all();
}

BackgroundCopier::BackgroundCopier() : state_(std::make_unique<State>()) {}

BackgroundCopier::~BackgroundCopier() { state_->stop(); }

bool BackgroundCopier::works() const { return !state_->threads.empty(); }

void BackgroundCopier::serve(const CaptureSession& session) {
  const std::lock_guard lock(state_->mutex);
  state_->waiting = session;
  state_->changed.notify_all();
}

}  // namespace deepfreeze

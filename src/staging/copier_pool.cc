#include "staging/copier_pool.h"

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/named_threads.h"

namespace deepfreeze {
namespace {

struct Offer {
  CaptureSession session;
  std::uint32_t group = kUnguarded;
};

}  // namespace

struct CopierPool::State {
  explicit State(std::size_t thread_count)
      : threads(start_threads(thread_count, "df-copy", [this] { work(); })) {}

  void work();
  [[nodiscard]] std::optional<Offer> next(std::uint64_t& runs_seen);
  [[nodiscard]] std::uint64_t offer(Offer offer);
  void withdraw(std::uint64_t run);
  void stop();

  std::mutex mutex;  // guards the next three
  std::optional<Offer> offered;
  std::uint64_t runs = 0;  // tells one offer from the next
  bool stopping = false;
  std::condition_variable changed;
  std::vector<std::jthread> threads;  // last: they use all above
};

void CopierPool::State::work() {
  std::uint64_t runs_seen = 0;
  // Holds a copy of the session: run() may have returned long before a late thread wakes.
  while (auto offer = next(runs_seen)) offer->session.help(offer->group);
}

// Waits for a session that this thread has not helped yet; empty once the pool stops.
std::optional<Offer> CopierPool::State::next(std::uint64_t& runs_seen) {
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return stopping || (offered && runs != runs_seen); });
  if (stopping) return std::nullopt;
  runs_seen = runs;
  return offered;
}

std::uint64_t CopierPool::State::offer(Offer offer) {
  const std::lock_guard lock(mutex);
  offered = std::move(offer);
  changed.notify_all();
  return ++runs;
}

// Unless another run has taken the place already.
void CopierPool::State::withdraw(std::uint64_t run) {
  const std::lock_guard lock(mutex);
  if (runs == run) offered.reset();
}

void CopierPool::State::stop() {
  const std::lock_guard lock(mutex);
  stopping = true;
  changed.notify_all();
}

CopierPool::CopierPool(std::size_t thread_count)
    : state_(std::make_unique<State>(std::min(thread_count, kCopyThreadsMax))) {}

CopierPool::~CopierPool() { state_->stop(); }

void CopierPool::run(CaptureSession& session, std::uint32_t group,
                     std::span<const DeviceStream> streams) {
  const std::uint64_t run = state_->offer({session, group});
  session.fence(group, streams);
  state_->withdraw(run);
}

}  // namespace deepfreeze

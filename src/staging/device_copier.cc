#include "staging/device_copier.h"

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/cores.h"
#include "base/named_threads.h"

namespace deepfreeze {

struct DeviceCopier::State {
  State();

  void give();
  void hand_on();
  [[nodiscard]] std::optional<CaptureSession> next(std::uint64_t& calls_seen);
  void stop();

  std::mutex mutex;  // guards the next three
  std::optional<CaptureSession> served;
  std::uint64_t calls = 0;
  bool stopping = false;
  std::condition_variable changed;
  // Last: they use all above.
  std::vector<std::jthread> givers;
  std::vector<std::jthread> arrivals;
};

DeviceCopier::State::State()
    : givers(start_threads(1, "df-device", [this] { give(); })),
      arrivals(start_threads(std::min(kArrivalThreads, cores_of_this_process()), "df-arrive",
                             [this] { hand_on(); })) {}

void DeviceCopier::State::give() {
  std::uint64_t calls_seen = 0;
  while (auto session = next(calls_seen)) session->enqueue();
}

void DeviceCopier::State::hand_on() {
  std::uint64_t calls_seen = 0;
  while (auto session = next(calls_seen)) {
    while (session->arrive(true)) {
    }
  }
}

// The session last given to serve(), once for each call; empty once this stops.
std::optional<CaptureSession> DeviceCopier::State::next(std::uint64_t& calls_seen) {
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return stopping || calls != calls_seen; });
  if (stopping) return std::nullopt;
  calls_seen = calls;
  return served;
}

void DeviceCopier::State::stop() {
  const std::lock_guard lock(mutex);
  stopping = true;
  changed.notify_all();
}

DeviceCopier::DeviceCopier() : state_(std::make_unique<State>()) {}

DeviceCopier::~DeviceCopier() { state_->stop(); }

bool DeviceCopier::works() const { return !state_->givers.empty() && !state_->arrivals.empty(); }

void DeviceCopier::serve(const CaptureSession& session) {
  const std::lock_guard lock(state_->mutex);
  state_->served = session;
  ++state_->calls;
  state_->changed.notify_all();
}

}  // namespace deepfreeze

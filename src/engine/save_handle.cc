#include "engine/save_handle.h"

#include <algorithm>

#include "base/try.h"

namespace deepfreeze {
namespace {

bool reached(const SaveStatus& status, Level level) {
  switch (level) {
    case Level::kCaptured:
      return status.captured;
    case Level::kLocal:
      return status.local;
    case Level::kDurable:
      return status.durable;
  }
  return false;
}

}  // namespace

void SaveHandle::State::reach(Level level) {
  const std::lock_guard lock(mutex);
  status.captured = true;
  status.local = status.local || level != Level::kCaptured;
  status.durable = status.durable || level == Level::kDurable;
  if (status.durable) status.durable_seconds = seconds_since(started);
  changed.notify_all();
}

void SaveHandle::State::fail(Error error) {
  const std::lock_guard lock(mutex);
  if (!status.error) status.error = std::move(error);
  changed.notify_all();
}

void SaveHandle::State::update(std::uint64_t bytes_written) {
  const std::lock_guard lock(mutex);
  status.bytes_written = bytes_written;
}

Status SaveHandle::wait(Level level, std::optional<std::chrono::milliseconds> timeout) const {
  std::unique_lock lock(state_->mutex);
  const auto settled = [this, level] {
    return reached(state_->status, level) || state_->status.error.has_value();
  };
  if (timeout) {
    // A longer one would overflow the clock that it is added to.
    constexpr std::chrono::milliseconds kTimeoutMax = std::chrono::hours(24 * 365);
    state_->changed.wait_for(lock, std::min(*timeout, kTimeoutMax), settled);
  } else {
    state_->changed.wait(lock, settled);
  }
  if (reached(state_->status, level)) return {};
  if (state_->status.error) return std::unexpected(*state_->status.error);
  return deepfreeze::fail(ErrorCode::kTimeout,
                          "wait for step " + std::to_string(state_->status.step) + ": timed out");
}

SaveStatus SaveHandle::status() const {
  const std::lock_guard lock(state_->mutex);
  return state_->status;
}

}  // namespace deepfreeze

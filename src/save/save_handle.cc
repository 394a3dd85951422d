#include "save/save_handle.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

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
    case Level::kProtected:
      return status.is_protected;
  }
  return false;
}

void note(const CaptureTimes& times, SaveStatus& status) {
  constexpr double kSecondsPerNano = 1e-9;
  status.bytes_copied = times.copied_bytes;
  status.copy_seconds = static_cast<double>(times.copy_nanos) * kSecondsPerNano;
  status.checksum_seconds = static_cast<double>(times.checksum_nanos) * kSecondsPerNano;
}

// With the lock held. Nothing: it is protected, or may still be.
std::optional<Error> why_unprotected(const SaveHandle::State& state) {
  if (state.is_meant_to_be_protected) return state.unprotected;
  return Error(ErrorCode::kUnsupported,
               fmt::format("step {} has no parity: the run was opened without protect, or its job "
                           "has one node",
                           state.status.step));
}

// A caller that gets the save's own error knows of the failure.
Status told(SaveHandle::State& state, Status ended) {
  if (!ended && ended.error().code() != ErrorCode::kTimeout) state.was_told();
  return ended;
}

}  // namespace

std::shared_ptr<SaveHandle::State> make_handle_state(std::uint64_t step) {
  auto state = std::make_unique<SaveHandle::State>(step);
  return {state.release(), [owner = ::getpid()](SaveHandle::State* last) {
            if (::getpid() == owner) std::unique_ptr<SaveHandle::State>(last).reset();
          }};
}

void SaveHandle::State::meant_to_be_protected() {
  const std::lock_guard lock(mutex);
  is_meant_to_be_protected = true;
}

void SaveHandle::State::protect() {
  const std::lock_guard lock(mutex);
  if (status.is_protected) return;
  status.is_protected = true;
  status.protected_seconds = seconds_since(started);
  changed.notify_all();
}

void SaveHandle::State::give_up_protection(std::string_view why) {
  const std::lock_guard lock(mutex);
  if (unprotected) return;
  unprotected =
      Error(ErrorCode::kCancelled, fmt::format("step {} has no parity: {}", status.step, why));
  changed.notify_all();
}

void SaveHandle::State::reach(Level level) {
  const std::lock_guard lock(mutex);
  status.captured = true;
  if (level != Level::kCaptured && !status.local) {
    status.local = true;
    status.local_seconds = seconds_since(started);
  }
  note_durable("");
  changed.notify_all();
}

// The last tier that the step is meant for decides; without any, the run's own directory does.
void SaveHandle::State::note_durable(std::string_view why) {
  const auto meant = std::ranges::find_if(
      status.tiers.rbegin(), status.tiers.rend(),
      [](const TierProgress& tier) { return tier.state != TierProgress::State::kNotMeant; });
  const bool is_meant = meant != status.tiers.rend();
  if (is_meant && meant->state == TierProgress::State::kLeftOut && !left_out) {
    left_out = Error(ErrorCode::kCancelled,
                     fmt::format("step {} is not on {}: {}", status.step, meant->path, why));
  }
  const bool is_there = !is_meant || meant->state == TierProgress::State::kCommitted;
  if (!status.local || status.durable || !is_there) return;
  status.durable = true;
  status.durable_seconds = seconds_since(started);
}

void SaveHandle::State::meant_for(std::vector<TierProgress> tiers) {
  const std::lock_guard lock(mutex);
  status.tiers = std::move(tiers);
}

bool SaveHandle::State::is_local() {
  const std::lock_guard lock(mutex);
  return status.local;
}

void SaveHandle::State::on_tier(std::size_t tier, TierProgress::State state, std::string_view why) {
  const std::lock_guard lock(mutex);
  TierProgress& progress = status.tiers.at(tier);
  if (progress.state != TierProgress::State::kWaiting) return;
  progress.state = state;
  note_durable(why);
  changed.notify_all();
}

void SaveHandle::State::fail(Error error) {
  // The save failed because a rank did not come in time; a waiting caller would take kTimeout for
  // its own deadline, and wait on.
  if (error.code() == ErrorCode::kTimeout) error = {ErrorCode::kIncomplete, error.message()};
  std::shared_ptr<UnconfirmedSave> dropped;  // its end must not come under the lock
  const std::lock_guard lock(mutex);
  if (!status.error) status.error = std::move(error);
  std::swap(dropped, unconfirmed);
  changed.notify_all();
}

void SaveHandle::State::abandon() {
  std::shared_ptr<UnconfirmedSave> told;
  {
    const std::lock_guard lock(mutex);
    std::swap(told, unconfirmed);
  }
  if (told) told->abandoned();
}

void SaveHandle::State::was_told() {
  const std::lock_guard lock(mutex);
  is_told = true;
}

void SaveHandle::State::copied() {
  const std::lock_guard lock(mutex);
  is_copied = true;
  changed.notify_all();
}

void SaveHandle::State::tore(std::vector<std::string> keys) {
  const std::lock_guard lock(mutex);
  status.torn = std::move(keys);
}

void SaveHandle::State::blocked_in_fence(double seconds) {
  const std::lock_guard lock(mutex);
  status.fence_seconds += seconds;
}

void SaveHandle::State::wrote(std::uint64_t bytes, double seconds) {
  const std::lock_guard lock(mutex);
  status.bytes_written = bytes;
  status.write_seconds = seconds;
}

void SaveHandle::State::shared(std::uint64_t bytes) {
  const std::lock_guard lock(mutex);
  status.bytes_shared = bytes;
}

void SaveHandle::State::capturing(const CaptureSession& captured) {
  const std::lock_guard lock(mutex);
  session = captured;
}

void SaveHandle::State::end_capture() {
  std::optional<CaptureSession> dropped;  // its end must not come under the lock
  const std::lock_guard lock(mutex);
  if (session) note(session->times(), status);
  std::swap(dropped, session);
}

void SaveHandle::State::counted_non_finite(std::uint64_t values) {
  const std::lock_guard lock(mutex);
  status.non_finite = values;
}

void SaveHandle::State::committed_in(double seconds) {
  const std::lock_guard lock(mutex);
  status.commit_seconds = seconds;
}

void SaveHandle::State::found_diverged(std::vector<Divergence> diverged) {
  const std::lock_guard lock(mutex);
  status.diverged = std::move(diverged);
}

Status SaveHandle::wait(Level level, std::optional<std::chrono::milliseconds> timeout) const {
  const auto is_reached = [this, level] { return reached(state_->status, level); };
  const auto failure = [this, level] {
    if (state_->status.error) return state_->status.error;
    if (level == Level::kDurable) return state_->left_out;
    return level == Level::kProtected ? why_unprotected(*state_) : std::nullopt;
  };
  return told(*state_, state_->wait_until(is_reached, failure, timeout));
}

Status SaveHandle::wait_copied(std::optional<std::chrono::milliseconds> timeout) const {
  return told(*state_, state_->wait_copied(timeout));
}

Status SaveHandle::State::wait_copied(std::optional<std::chrono::milliseconds> timeout) {
  return wait_until([this] { return is_copied || status.captured; },
                    [this] { return status.error; }, timeout);
}

void SaveHandle::confirm(std::vector<std::string> torn) const {
  std::shared_ptr<UnconfirmedSave> confirmed;
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->is_copied) std::swap(confirmed, state_->unconfirmed);
  }
  if (confirmed) confirmed->captured(std::move(torn));
}

Status SaveHandle::State::wait_until(const std::function<bool()>& reached,
                                     const std::function<std::optional<Error>()>& failure,
                                     std::optional<std::chrono::milliseconds> timeout) {
  std::unique_lock lock(mutex);
  const auto settled = [&] { return reached() || failure().has_value(); };
  if (timeout) {
    // A longer one would overflow the clock that it is added to.
    constexpr std::chrono::milliseconds kTimeoutMax = std::chrono::hours(24 * 365);
    changed.wait_for(lock, std::min(*timeout, kTimeoutMax), settled);
  } else {
    changed.wait(lock, settled);
  }
  if (reached()) return {};
  if (auto error = failure()) return std::unexpected(*std::move(error));
  return deepfreeze::fail(ErrorCode::kTimeout,
                          "wait for step " + std::to_string(status.step) + ": timed out");
}

SaveStatus SaveHandle::status() const {
  const std::lock_guard lock(state_->mutex);
  if (state_->session) note(state_->session->times(), state_->status);
  return state_->status;
}

}  // namespace deepfreeze

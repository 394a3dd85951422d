#include "object/refreshing_credentials.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "base/try.h"
#include "object/credential_answer.h"

namespace deepfreeze {

Result<Credentials> RefreshingCredentials::get() {
  while (true) {
    const TimePoint now = now_();
    std::unique_lock lock(mutex_);
    const bool has_keys = has_valid_keys(now);
    const bool wants_others = now >= due_ || is_refused_;
    if (has_keys && (!wants_others || is_pausing(now))) return *keys_;
    if (is_refreshing_) {
      if (has_keys && !is_refused_) return *keys_;
      ended_.wait(lock, [&] { return !is_refreshing_; });
      continue;
    }
    if (is_pausing(now)) return std::unexpected(*error_);
    is_refreshing_ = true;
    break;
  }
  return refresh();
}

void RefreshingCredentials::refuse(const Credentials& refused) {
  const std::lock_guard lock(mutex_);
  if (keys_ == refused) is_refused_ = true;
}

bool RefreshingCredentials::has_valid_keys(TimePoint now) const {
  return keys_ && now < valid_until_;
}

bool RefreshingCredentials::is_pausing(TimePoint now) const {
  // A clock that was set back does not make the pause longer.
  return error_ && now >= failed_at_ && now < failed_at_ + pause_;
}

// Otherwise others would wait for this refresh for ever.
Result<Credentials> RefreshingCredentials::ask_safely() {
  try {
    return ask_();
  } catch (const std::exception& cause) {
    return fail(ErrorCode::kIo, fmt::format("the source of keys has thrown: {}", cause.what()));
  }
}

Result<Credentials> RefreshingCredentials::refresh() {
  Result<Credentials> asked = ask_safely();
  if (asked) {
    if (const Status checked = check_keys(*asked); !checked) {
      asked = std::unexpected(checked.error());
    }
  }
  const TimePoint now = now_();
  std::optional<std::string> note;
  {
    const std::lock_guard lock(mutex_);
    is_refreshing_ = false;
    if (asked) {
      accept(*asked, now);
    } else {
      const bool is_first = !error_;
      note_failure(asked.error(), now);
      if (has_valid_keys(now)) {
        asked = *keys_;
        if (is_first) note = error_->message();
      }
    }
  }
  ended_.notify_all();
  if (note) log_note(fmt::format("{}; the present keys are used as long as they are valid", *note));
  return asked;
}

void RefreshingCredentials::accept(Credentials keys, TimePoint now) {
  keys_ = std::move(keys);
  is_refused_ = false;
  error_.reset();
  due_ = valid_until_ = TimePoint::max();
  if (!keys_->expires) return;
  const TimePoint end = std::max(*keys_->expires, now);  // any time may be written there
  due_ = std::max(end - kRefreshBefore, now + kNewKeysMin);
  valid_until_ = std::max(end, now + kNewKeysMin);
}

void RefreshingCredentials::note_failure(Error error, TimePoint now) {
  pause_ = error_ ? std::min(2 * pause_, kRefreshPauseMax) : kRefreshPauseMin;
  error_ = std::move(error);
  failed_at_ = now;
}

std::unique_ptr<CredentialSource> credentials_from(std::function<Result<Credentials>()> ask,
                                                   WallClock now) {
  return std::make_unique<RefreshingCredentials>(std::move(ask), std::move(now));
}

}  // namespace deepfreeze

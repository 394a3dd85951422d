// Keeps keys and gets new ones in time. Any thread.
#pragma once

#include <condition_variable>
#include <mutex>

#include "object/credentials.h"

namespace deepfreeze {

class RefreshingCredentials final : public CredentialSource {
 public:
  using Ask = std::function<Result<Credentials>()>;
  using TimePoint = std::chrono::system_clock::time_point;

  RefreshingCredentials(Ask ask, WallClock now) : ask_(std::move(ask)), now_(std::move(now)) {}

  [[nodiscard]] Result<Credentials> get() override;
  void refuse(const Credentials& refused) override;

 private:
  // With mutex_ held.
  [[nodiscard]] bool has_valid_keys(TimePoint now) const;
  [[nodiscard]] bool is_pausing(TimePoint now) const;
  void accept(Credentials keys, TimePoint now);
  void note_failure(Error error, TimePoint now);

  [[nodiscard]] Result<Credentials> ask_safely();
  [[nodiscard]] Result<Credentials> refresh();

  const Ask ask_;
  const WallClock now_;

  std::mutex mutex_;
  std::condition_variable ended_;  // a refresh
  // All that follows is guarded by mutex_.
  bool is_refreshing_ = false;
  std::optional<Credentials> keys_;
  bool is_refused_ = false;
  TimePoint due_{};             // new keys are wanted from here on
  TimePoint valid_until_{};     // the present ones are
  std::optional<Error> error_;  // of the last refresh
  TimePoint failed_at_{};
  std::chrono::seconds pause_{0};
};

}  // namespace deepfreeze

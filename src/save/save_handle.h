// How far one save has come: written by the engine, waited for by anyone.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "deepfreeze/checkpointer.h"
#include "staging/capture_session.h"

namespace deepfreeze {

// A save that counts only once its caller has confirmed it.
class UnconfirmedSave {
 public:
  virtual ~UnconfirmedSave() = default;
  // The caller found these keys to have changed meanwhile.
  virtual void captured(std::vector<std::string> torn) = 0;
  // The caller's last handle is gone.
  virtual void abandoned() = 0;
};

struct SaveHandle::State {
  explicit State(std::uint64_t step) { status.step = step; }

  // kLocal: committed in the run's own directory, and durable if no tier is still meant to have it.
  void reach(Level level);
  void fail(Error error);
  // The tiers of the run, before the save is committed; then its state on one of them.
  void meant_for(std::vector<TierProgress> tiers);
  void on_tier(std::size_t tier, TierProgress::State state, std::string_view why);
  // Parity is meant to protect it; then it does, or it never will.
  void meant_to_be_protected();
  void protect();
  void give_up_protection(std::string_view why);
  [[nodiscard]] bool is_local();
  // All is copied: a caller that waits for it may compare, then confirm().
  void copied();
  // The caller's last handle went before the save was confirmed.
  void abandon();
  void was_told();
  void tore(std::vector<std::string> keys);
  void blocked_in_fence(double seconds);
  void wrote(std::uint64_t bytes, double seconds);
  void shared(std::uint64_t bytes);
  void capturing(const CaptureSession& session);
  void end_capture();
  void counted_non_finite(std::uint64_t values);
  void committed_in(double seconds);
  void found_diverged(std::vector<Divergence> diverged);

  // Until `reached`, or `failure` says why it never will be; that error, or kTimeout.
  [[nodiscard]] Status wait_until(const std::function<bool()>& reached,
                                  const std::function<std::optional<Error>()>& failure,
                                  std::optional<std::chrono::milliseconds> timeout);
  // SaveHandle::wait_copied() for the engine's own use: no caller is told of an error.
  [[nodiscard]] Status wait_copied(std::optional<std::chrono::milliseconds> timeout = {});

  const Monotonic::time_point started = Monotonic::now();
  std::mutex mutex;  // guards all below
  std::condition_variable changed;
  SaveStatus status;
  std::optional<CaptureSession> session;  // while it may still be at work
  bool is_copied = false;
  bool is_told = false;                          // a waiting caller has the error
  std::shared_ptr<UnconfirmedSave> unconfirmed;  // until confirmed, abandoned or failed
  std::optional<Error> left_out;  // the last tier will never have it; the save itself is committed
  bool is_meant_to_be_protected = false;
  std::optional<Error> unprotected;  // parity will never protect it

 private:
  void note_durable(std::string_view why);
};

// In a forked child the last reference leaves it as it is: a thread of the parent may be waiting
// for its condition, and destroying that would wait for the thread, for ever.
[[nodiscard]] std::shared_ptr<SaveHandle::State> make_handle_state(std::uint64_t step);

}  // namespace deepfreeze

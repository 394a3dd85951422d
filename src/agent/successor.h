// Goes on with the work of one trainer that is gone, in a thread of its own: finishes the save that
// was captured, then brings the run's checkpoints to its tiers.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "agent/agent_message.h"
#include "base/unique_fd.h"
#include "save/finish_save.h"

namespace deepfreeze {

// A tier that takes nothing for so long is given up; the next program that opens the run goes on.
inline constexpr std::chrono::minutes kFlushIdleMax{10};

struct LeftWork {
  std::string run;
  pid_t process = 0;
  std::vector<Tier> tiers;  // none: nothing is flushed
  UniqueFd handover;        // invalid if the trainer ended in good order
  UniqueFd arena;           // the same, or if it never had one
};

class Successor {
 public:
  // `on_change` is called by the thread after each of its steps. Throws std::system_error if no
  // thread can be started.
  Successor(LeftWork work, std::function<void()> on_change);
  Successor(const Successor&) = delete;
  Successor& operator=(const Successor&) = delete;
  // Waits for the save, not for the flush.
  ~Successor();

  // Any thread.
  // Somebody waits for the save.
  void hurry() { is_awaited_ = true; }
  [[nodiscard]] bool has_settled() const;  // the save is finished, or can't be
  [[nodiscard]] bool has_ended() const;
  void end_flush();
  [[nodiscard]] AgentClient report() const;
  [[nodiscard]] const std::string& run() const { return run_; }
  [[nodiscard]] const std::vector<Tier>& tiers() const { return tiers_; }

 private:
  void work(LeftWork work);
  [[nodiscard]] Result<LeftOutcome> finish(LeftWork& work);
  [[nodiscard]] Status flush(const LeftWork& work);
  void note(std::string state);
  [[nodiscard]] bool is_told_to_end() const;

  const std::string run_;
  const std::vector<Tier> tiers_;
  std::atomic<bool> is_awaited_ = false;
  const std::function<void()> on_change_;
  mutable std::mutex mutex_;
  AgentClient report_;  // guarded by mutex_, like all below
  bool has_settled_ = false;
  bool has_ended_ = false;
  bool ends_flush_ = false;
  std::thread thread_;  // last: it uses all above
};

}  // namespace deepfreeze

// Goes on with the work of one trainer that is gone, in a thread of its own: finishes the save that
// was captured, then brings the run's checkpoints to its tiers.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "agent/agent_message.h"
#include "base/unique_fd.h"
#include "nodes/leader_heir.h"
#include "save/finish_save.h"

namespace deepfreeze {

// A tier that takes nothing for so long is given up; the next program that opens the run goes on.
inline constexpr std::chrono::minutes kFlushIdleMax{10};

// Rank 0's successor answers other nodes until none has asked for so long, and not for longer than
// the second time.
inline constexpr std::chrono::seconds kAskedQuiet{10};
inline constexpr std::chrono::minutes kAskedMax{1};

struct LeftWork {
  std::string run;
  pid_t process = 0;
  std::vector<Tier> tiers;  // none: nothing is flushed
  bool is_on_nodes = false;
  bool is_rank0 = true;
  UniqueFd handover = {};                     // invalid if the trainer ended in good order
  UniqueFd arena = {};                        // the same, or if it never had one
  std::optional<LeaderHandover> leader = {};  // the same, or if it led no node
  UniqueFd listener = {};                     // the same, or if it was not rank 0
};

class Successor {
 public:
  // `on_change` is called by the thread after each of its steps. Throws std::system_error if no
  // thread can be started.
  Successor(LeftWork work, std::function<void()> on_change);
  Successor(const Successor&) = delete;
  Successor& operator=(const Successor&) = delete;
  // Waits for the save, not for the flush nor for other nodes.
  ~Successor();

  // Any thread.
  // Somebody waits for the save.
  void hurry() { is_awaited_ = true; }
  [[nodiscard]] bool has_settled() const;  // the save is finished, or can't be
  [[nodiscard]] bool has_flushed() const;
  [[nodiscard]] bool has_ended() const;
  void end_flush();
  [[nodiscard]] AgentClient report() const;
  [[nodiscard]] const std::string& run() const { return run_; }
  [[nodiscard]] const std::vector<Tier>& tiers() const { return tiers_; }

 private:
  void work(LeftWork work);
  void settle(LeftWork& work);
  [[nodiscard]] Result<LeftOutcome> finish(LeftWork& work);
  void take_leaders_place(LeftWork& work, const LeftSave& left);
  [[nodiscard]] Result<Manifest> commit_with_nodes(const LeftSave& left, const Identity& identity,
                                                   std::optional<Error> failure);
  void flush_and_note(const LeftWork& work);
  [[nodiscard]] Status flush(const LeftWork& work);
  void answer_nodes();
  void note(std::string state);
  [[nodiscard]] bool is_told_to_end() const;
  [[nodiscard]] bool is_over() const;

  const std::string run_;
  const std::vector<Tier> tiers_;
  std::atomic<bool> is_awaited_ = false;
  const std::function<void()> on_change_;
  mutable std::mutex mutex_;
  AgentClient report_;  // guarded by mutex_, like all below
  bool has_settled_ = false;
  bool has_flushed_ = false;
  bool has_ended_ = false;
  bool ends_flush_ = false;
  bool is_over_ = false;              // by the destructor
  std::unique_ptr<LeaderHeir> heir_;  // the thread's; null: it has led no node
  std::thread thread_;                // last: it uses all above
};

}  // namespace deepfreeze

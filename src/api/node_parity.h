// Protects a node's checkpoints by parity over the nodes of its group (docs/decisions/0033): the
// parity file of this node is calculated from the files of the group's nodes.
//
// Rank 0 says which checkpoint all leaders protect (parity_conductor.h). One thread, `df-parity`,
// from start() to stop(), which steps aside for training. Functions are for any thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "api/parity_conductor.h"
#include "base/clock.h"
#include "base/rate_limit.h"
#include "deepfreeze/options.h"
#include "manifest/run_directory.h"
#include "nodes/link_dispatcher.h"
#include "protect/write_parity.h"
#include "save/save_handle.h"
#include "storage/file_lock.h"
#include "storage/vfs.h"

namespace deepfreeze {

// So many committed saves may wait for protection; then the oldest gets none.
inline constexpr std::size_t kUnprotectedMax = 8;
// Until a message is sent again, or a rank that does not lead looks for the mark again; it grows.
inline constexpr std::chrono::milliseconds kParityPauseMin{20};
inline constexpr std::chrono::milliseconds kParityPauseMax{30'000};
inline constexpr std::chrono::milliseconds kMarkPauseMax{1'000};
// A leader whose link is down for so long is not waited for by drain(): longer than
// LinkTimes::retry_max. So long a rank that does not lead waits for the word of a leader that is
// gone.
inline constexpr std::chrono::milliseconds kParityLinkMax{6'000};
// Ends of checkpoints that could not be written into their directories yet; then the oldest of
// those that got no parity is only told.
inline constexpr std::size_t kVerdictsMax = 2 * kUnprotectedMax;

// The checkpoint whose parity is being written: no collector of this process may delete it. Any
// thread.
class ParityHold {
 public:
  void hold(const std::optional<AttemptName>& name) {
    const std::lock_guard lock(mutex_);
    name_ = name;
  }
  [[nodiscard]] std::vector<AttemptName> held() const {
    const std::lock_guard lock(mutex_);
    return name_ ? std::vector<AttemptName>{*name_} : std::vector<AttemptName>();
  }

 private:
  mutable std::mutex mutex_;
  std::optional<AttemptName> name_;
};

class NodeParity final : public LinkTaker {
 public:
  // A node of the group.
  struct Peer {
    std::uint64_t node = 0;
    std::vector<std::uint32_t> ranks;  // the first leads
    std::unique_ptr<Vfs> files;        // of its near directory, for this object's thread alone
  };
  struct Settings {
    Parity parity = {};
    std::vector<Peer> group = {};             // this node's, in the order of their nodes
    std::size_t own = 0;                      // this node's place in it
    std::vector<std::uint32_t> leaders = {};  // of all nodes; the first is rank 0
    // False for a rank that does not lead its node: it only looks into the directory.
    bool leads = true;
    // Told of the checkpoint that is begun, until it is protected or given up.
    std::shared_ptr<ParityHold> hold = std::make_shared<ParityHold>();
    std::chrono::milliseconds link_max = kParityLinkMax;  // tests shorten it
    // Sends to another leader; an error: it will not come. Does not wait.
    std::function<Status(std::uint32_t rank, const LinkMessage& message)> send = {};
  };
  // kNoSpace: the system refuses a thread.
  [[nodiscard]] static Result<std::unique_ptr<NodeParity>> start(Settings settings);
  explicit NodeParity(Settings settings);
  NodeParity(const NodeParity&) = delete;
  NodeParity& operator=(const NodeParity&) = delete;
  ~NodeParity() override { stop(); }

  // Before the save is committed. Then: it has failed, or is committed on this node.
  void expect(const AttemptName& name, const std::shared_ptr<SaveHandle::State>& handle);
  void forget(const AttemptName& name);
  void committed(const AttemptName& name);

  // Waits until the newest checkpoint that is committed here is protected, or can't be: the missing
  // nodes have no link, or have failed. A rank that does not lead waits for its leader's word,
  // until that one has stopped, and kParityLinkMax more. At most so long.
  void drain(std::chrono::milliseconds patience) noexcept;
  // Ends the thread, which may wait for other nodes' files: end that first. A warning says if the
  // newest checkpoint is not protected.
  void stop() noexcept;

  // The dispatcher's.
  void take(std::uint32_t rank, LinkMessage message) override;
  void note(const LinkState& state) override;
  void end() override {}

 private:
  struct Entry {
    AttemptName name;
    std::weak_ptr<SaveHandle::State> handle;
    bool is_committed = false;
  };
  // The checkpoint that rank 0 wants to be protected.
  struct Current {
    AttemptName name;
    std::uint64_t turn = 0;
    bool is_written = false;
    bool has_failed = false;  // until rank 0 says again to begin
  };
  // The end of a checkpoint's protection, which its directory gets before its handle.
  static constexpr std::string_view kOvertaken = "a newer checkpoint came first";
  struct Verdict {
    AttemptName name;
    std::weak_ptr<SaveHandle::State> handle;
    bool is_protected = false;
  };

  void lock_node();
  void work();
  void pause(std::uint64_t wakes);
  [[nodiscard]] bool step();
  [[nodiscard]] bool settle_all();
  [[nodiscard]] bool settle(const Verdict& verdict);
  void drop_verdicts();
  void await_drained(std::chrono::milliseconds patience);
  void end_all();
  [[nodiscard]] Status mark(const Verdict& verdict);
  [[nodiscard]] std::optional<AttemptName> to_write();
  [[nodiscard]] bool try_write(const AttemptName& name);
  [[nodiscard]] Status write(const AttemptName& name);
  [[nodiscard]] bool note_written(const AttemptName& name, const Status& written);
  void tell_again();
  // Without the lock: a handle may end here.
  static void tell(const std::weak_ptr<SaveHandle::State>& handle, bool is_protected,
                   std::string_view why_not);
  // For a rank that does not lead.
  [[nodiscard]] bool look();
  void settle_known(std::vector<Entry>& entries);
  void end(const Entry& entry, bool is_protected);
  [[nodiscard]] std::optional<bool> verdict_of(const AttemptName& name) const;
  // Messages go out without the lock.
  void tell_rank0(const AttemptName& name, ParityStage stage, std::uint64_t turn);
  template <class Ask>
  void conduct(Ask ask);
  void carry_out(const ParityConductor::Orders& orders);
  void obey(const ParityConductor::Order& order);
  // With the lock held.
  [[nodiscard]] bool begin(const ParityConductor::Order& order);
  void decide(const AttemptName& name, bool is_protected);
  void take_back(const AttemptName& name);
  [[nodiscard]] bool note_settled(const Verdict& verdict);
  void give_up_older(const AttemptName& name);
  [[nodiscard]] bool is_drained() const;
  [[nodiscard]] bool is_gone(std::uint32_t leader) const;
  [[nodiscard]] bool is_waiting() const;
  [[nodiscard]] std::size_t committed_count() const;
  [[nodiscard]] Entry* find(const AttemptName& name);
  void restart_pause();
  void wake();

  [[nodiscard]] Vfs& near() const { return *settings_.group[settings_.own].files; }
  [[nodiscard]] std::uint32_t own_leader() const {
    return settings_.group[settings_.own].ranks.front();
  }
  [[nodiscard]] std::uint32_t rank0() const { return settings_.leaders.front(); }

  Settings settings_;
  RateLimit rate_;
  std::atomic<bool> stop_{false};
  std::atomic<bool> leave_{false};  // the parity that is being written: it is not wanted any more

  mutable std::mutex mutex_;  // guards all below, up to the thread
  std::condition_variable changed_;
  std::optional<ParityConductor> conductor_;  // of rank 0
  std::size_t sending_ = 0;                   // orders of its that are on their way out
  std::vector<Entry> entries_;                // oldest first
  std::optional<Current> current_;
  std::uint64_t turn_ = 0;                // of the latest order that was heard
  std::vector<Verdict> verdicts_;         // oldest first
  std::optional<AttemptName> protected_;  // the newest checkpoint of this process that is
  std::map<std::uint32_t, Monotonic::time_point> lost_;  // since when a rank has no link
  std::set<std::uint32_t> ended_;  // leaders whose process is dead, by the word of their heirs
  std::uint64_t wakes_ = 0;        // counts the times at which the thread got something to do
  std::chrono::milliseconds pause_ = kParityPauseMin;
  Monotonic::time_point repeat_at_ = {};  // at the end of the pause, whatever comes in between
  bool is_told_ = false;                  // the user, of the present failure to write parity
  bool is_mark_told_ = false;             // and of that to mark a checkpoint

  FileLock lock_;  // of node.json, while this leader may still have a word for its node's ranks
  std::vector<std::jthread> thread_;  // one, until stop()
};

}  // namespace deepfreeze

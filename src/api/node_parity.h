// Protects a node's checkpoints by parity over the nodes of its group (docs/decisions/0033): after
// each commit the parity file of this node is calculated from the files of the group's nodes.
//
// One thread, `df-parity`, from start() to stop(). It steps aside for training. Leaders tell each
// other how far they are (ParityStage): a checkpoint that another one has begun comes first, else
// the newest. Once all groups have the parity of a checkpoint, it is protected, and older ones get
// none. Functions are for any thread.
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

#include "base/clock.h"
#include "base/rate_limit.h"
#include "deepfreeze/options.h"
#include "manifest/run_directory.h"
#include "nodes/link_dispatcher.h"
#include "protect/write_parity.h"
#include "save/save_handle.h"
#include "storage/vfs.h"

namespace deepfreeze {

// So many checkpoints may wait for the parity of other nodes; then the oldest is given up.
inline constexpr std::size_t kUnprotectedMax = 8;
// Between two tries after an error, or two looks of a rank that does not lead.
inline constexpr std::chrono::milliseconds kParityPauseMin{20};
inline constexpr std::chrono::milliseconds kParityPauseMax{1'000};
// A node whose link is down for so long is not waited for by drain().
inline constexpr std::chrono::milliseconds kParityLinkMax{2'000};

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
    std::size_t groups = 1;                   // of the job
    std::vector<Peer> group = {};             // this node's, in the order of their nodes
    std::size_t own = 0;                      // this node's place in it
    std::vector<std::uint32_t> leaders = {};  // of all nodes; the first is rank 0
    // False for a rank that does not lead its node: it only looks into the directory, if somebody
    // waits for it.
    bool leads = true;
    // Sends to another leader; an error: it will not come.
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

  // Attempts that may not be deleted on this node yet, beside those of protected_attempts(): a node
  // has begun their parity.
  [[nodiscard]] std::vector<AttemptName> held() const;

  // Waits until the newest checkpoint is protected, or can't be: the missing nodes have no link, or
  // all have tried. At most so long.
  void drain(std::chrono::milliseconds patience);
  // Ends the thread, which may wait for other nodes' files: end that first. A warning says if this
  // node's parity of the newest checkpoint is missing.
  void stop();

  // The dispatcher's.
  void take(std::uint32_t rank, LinkMessage message) override;
  void note(const LinkState& state) override;
  void end() override {}

 private:
  struct Entry {
    AttemptName name;
    std::uint64_t number = 0;  // the later, the newer
    std::weak_ptr<SaveHandle::State> handle;
    bool is_committed = false;
    bool is_written = false;             // this node's parity
    bool is_group_told = false;          // that this group has it
    bool is_unwritable = false;          // a source is damaged or gone
    bool is_protected = false;           // in all groups
    std::set<std::uint32_t> begun = {};  // leaders of the group, as the next
    std::set<std::uint32_t> written = {};
    std::set<std::uint32_t> groups = {};  // at rank 0: first leaders of groups that have it
    [[nodiscard]] std::size_t others() const { return begun.size() + written.size(); }
  };

  void work();
  void pause(std::uint64_t wakes);
  [[nodiscard]] bool step();
  [[nodiscard]] std::optional<AttemptName> to_settle();
  [[nodiscard]] std::optional<AttemptName> to_write();
  [[nodiscard]] std::optional<AttemptName> marked();
  [[nodiscard]] bool try_write(const AttemptName& name);
  [[nodiscard]] Status write(const AttemptName& name);
  void note_written(const AttemptName& name, const Status& written);
  void tell_group(const AttemptName& name, ParityStage stage) const;
  void tell_all(const AttemptName& name) const;
  void tell_stages();
  void tell_again();
  void settle(const AttemptName& name);
  void give_up_until(const AttemptName& name);
  [[nodiscard]] bool is_drained() const;
  [[nodiscard]] bool is_gone(std::uint32_t leader) const;
  [[nodiscard]] std::uint32_t own_leader() const { return leader_of(settings_.own); }
  [[nodiscard]] std::uint32_t leader_of(std::size_t member) const {
    return settings_.group[member].ranks.front();
  }
  [[nodiscard]] bool is_rank0() const { return own_leader() == settings_.leaders.front(); }
  [[nodiscard]] Entry* find(const AttemptName& name);
  void wake();

  Settings settings_;
  RateLimit rate_;
  std::atomic<bool> stop_{false};

  mutable std::mutex mutex_;  // guards all below, up to the thread
  std::condition_variable changed_;
  std::vector<Entry> entries_;     // oldest first
  std::uint64_t last_number_ = 0;  // of an entry
  std::optional<AttemptName> in_work_;
  std::optional<AttemptName> protected_;                 // the newest, of this process
  std::map<std::uint32_t, Monotonic::time_point> lost_;  // since when a rank has no link
  std::uint64_t wakes_ = 0;                              // there may be something to do
  std::chrono::milliseconds pause_ = kParityPauseMin;
  bool is_failing_ = false;  // the last try to write failed, and the user was told

  std::vector<std::jthread> thread_;  // one, until stop()
};

}  // namespace deepfreeze

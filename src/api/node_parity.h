// Protects a node's checkpoints by parity over the nodes of its group (docs/decisions/0033): after
// each commit the parity file of this node is calculated from the files of the group's nodes.
//
// One thread, `df-parity`, from start() to stop(). It steps aside for training. The newest
// checkpoint comes first; one whose parity was not begun when a newer one is committed gets none.
// Leaders tell each other when theirs is durable. Functions are for any thread.
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
    Parity parity;
    std::vector<Peer> group;  // in the order of their nodes
    std::size_t own = 0;      // this node's place in it
    std::uint64_t nodes = 1;  // of the job
    // False for a rank that does not lead its node: it only looks into the directory, if somebody
    // waits for it.
    bool leads = true;
    // Sends to another leader; an error: it will not come.
    std::function<Status(std::uint32_t rank, const LinkMessage& message)> send;
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

  // Attempts that may not be deleted on this node yet: the newest that is protected.
  [[nodiscard]] std::vector<AttemptName> held() const;

  // Waits until the newest checkpoint is protected by all nodes, or can't be: this node's parity
  // fails, or the missing nodes have no link. At most so long.
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
    bool is_written = false;          // this node's parity
    std::set<std::size_t> seen = {};  // members of the group whose parity is durable
  };

  void work();
  void pause(std::uint64_t wakes);
  [[nodiscard]] bool step();
  [[nodiscard]] Status write(const AttemptName& name);
  void announce(const AttemptName& name) const;
  void settle(const AttemptName& name);
  [[nodiscard]] bool is_marked(const AttemptName& name) const;
  [[nodiscard]] std::optional<AttemptName> to_write();
  [[nodiscard]] std::optional<AttemptName> to_settle();
  [[nodiscard]] std::vector<AttemptName> to_look_for();
  void note_written(const AttemptName& name, const Status& written);
  void give_up_before(const AttemptName& name);
  [[nodiscard]] bool is_drained() const;
  [[nodiscard]] bool is_gone(const Peer& peer) const;
  [[nodiscard]] Entry* find(const AttemptName& name);
  void wake();

  Settings settings_;
  RateLimit rate_;
  std::atomic<bool> stop_{false};

  mutable std::mutex mutex_;  // guards all below, up to the thread
  std::condition_variable changed_;
  std::vector<Entry> entries_;                           // oldest first
  std::uint64_t last_number_ = 0;                        // of an entry
  std::optional<AttemptName> protected_;                 // the newest
  std::map<std::uint32_t, Monotonic::time_point> lost_;  // since when a rank has no link
  std::uint64_t wakes_ = 0;                              // there may be something to do
  std::chrono::milliseconds pause_ = kParityPauseMin;
  bool is_failing_ = false;  // the last try to write failed, and the user was told

  std::vector<std::jthread> thread_;  // one, until stop()
};

}  // namespace deepfreeze

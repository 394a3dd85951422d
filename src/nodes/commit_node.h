// Steps N2 to N7 of the commit of a job whose nodes have near directories of their own
// (docs/decisions/0026): the leader of each node commits with it. commit_node.cc numbers the steps.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>

#include "nodes/leader.h"

namespace deepfreeze {

// Rank 0 may begin to wait last, and may then wait just as long for the reports.
inline constexpr int kAnswerWaits = 2;

struct NodeSave {
  Identity identity;  // of the leader's first part
  // How long rank 0 waits for the parts of all ranks; another leader, kAnswerWaits times as long.
  std::chrono::milliseconds commit_wait_max{0};
  // The leader's own part has failed, and is withdrawn.
  std::optional<Error> failure = {};
};

// Waits until the attempt has an outcome in this node's directory, durably. For rank 0 errors are
// those of commit_attempt(), for others those of await_outcome(), and kFenced. After "outcome
// unknown" the attempt is in doubt, see answered.h. The leader's ranks await_outcome() meanwhile.
// One save at a time; the leader's thread, which takes letters meanwhile. Once `is_enough` is true
// it waits no longer, as after its deadline.
[[nodiscard]] Result<Manifest> commit_node(
    const Leader& leader, const NodeSave& save,
    const std::function<bool()>& is_enough = [] { return false; });

// The commit without its waits: for a caller that has other things to wait for, or a test.
class NodeCommit {
 public:
  [[nodiscard]] static std::unique_ptr<NodeCommit> start(const Leader& leader, NodeSave save);
  NodeCommit() = default;
  NodeCommit(const NodeCommit&) = delete;
  NodeCommit& operator=(const NodeCommit&) = delete;
  virtual ~NodeCommit() = default;

  // Goes as far as it can now. Nothing: a file or a letter is missing. Not again after a result.
  [[nodiscard]] virtual std::optional<Result<Manifest>> advance() = 0;
  // Ends it: the deadline is over.
  [[nodiscard]] virtual Result<Manifest> time_out() = 0;
};

}  // namespace deepfreeze

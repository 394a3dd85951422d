// The steps, as in decision 0026; N1 is steps 1 to 4 of the commit protocol, by each rank.
//
//  N2  a leader: its node's parts are there; size, CRC and identity of each header; the attempt's
//      directory is synced.                                            (reporting_commit.cc)
//  N3  its own claim is there and no higher one, no outcome, no `.failed`; then it reports. From
//      here on the attempt is in doubt for this node.                  (the same)
//  N4  rank 0: its own parts and all reports; step 5 on all headers.   (deciding_commit.cc)
//  N5  rank 0: step 6 in its directory: committed.                     (the same)
//  N6  rank 0: only now others are told, and later each one that asks. (the same, leader.cc)
//  N7  a leader: the record lists its files, which are there; the same bytes, durably.
//  (answered.cc)
#include "nodes/commit_node.h"

#include <algorithm>
#include <thread>

#include "base/clock.h"
#include "nodes/deciding_commit.h"
#include "nodes/reporting_commit.h"

namespace deepfreeze {
namespace {

constexpr std::chrono::milliseconds kPauseMax{100};  // nobody announces a file

}  // namespace

std::unique_ptr<NodeCommit> NodeCommit::start(const Leader& leader, NodeSave save) {
  if (leader.decides()) return std::make_unique<DecidingCommit>(leader, std::move(save));
  return std::make_unique<ReportingCommit>(leader, std::move(save));
}

Result<Manifest> commit_node(const Leader& leader, const NodeSave& save,
                             const std::function<bool()>& is_enough) {
  using std::chrono::milliseconds;
  const auto wait = leader.decides() ? save.commit_wait_max : kAnswerWaits * save.commit_wait_max;
  const auto deadline = Monotonic::now() + wait;
  const auto commit = NodeCommit::start(leader, save);
  milliseconds pause{1};
  while (true) {
    if (auto outcome = commit->advance()) return *std::move(outcome);
    const auto left = std::chrono::ceil<milliseconds>(deadline - Monotonic::now());
    if (left <= milliseconds(0) || is_enough()) return commit->time_out();
    const milliseconds wait_now = std::min(pause, left);
    if (!take_letters(leader, wait_now)) std::this_thread::sleep_for(wait_now);
    pause = std::min(2 * pause, kPauseMax);
  }
}

}  // namespace deepfreeze

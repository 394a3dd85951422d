// The parts of a Checkpointer that other nodes take part in (docs/decisions/0026).
#include <fmt/format.h>

#include <algorithm>

#include "agreement/history_rounds.h"
#include "agreement/parity_round.h"
#include "api/checkpointer_impl.h"
#include "base/host_name.h"
#include "base/log.h"
#include "base/try.h"

namespace deepfreeze {

Result<NodeMap> Checkpointer::Impl::find_nodes(Vfs& vfs, const Options& options,
                                               const JobRanks& ranks) {
  DF_TRY(NodeMap map, NodeMap::find(ranks.group(), vfs, host_name()));
  if (!map.is_one()) DF_TRY_VOID(share_history(*ranks.group(), map, vfs, options.parent));
  return map;
}

// A claim needs all ranks, so they vote again after it.
Result<SaveVerdict> Checkpointer::Impl::agree_on_nodes(const SaveVote& own) {
  const MakeIdentity make_identity = [&]() -> Result<std::optional<Identity>> {
    auto identity = writer.identity_if_claimed(own.step);
    if (identity && *identity) nodes->begin(**identity);
    return identity;
  };
  DF_TRY(const SaveVerdict verdict, ranks.agree_on_save(own, make_identity));
  if (!verdict.claim) return verdict;
  settle_for_claim();  // the tiers' claims reach all nodes by the rounds
  if (const Status claim = nodes->claim(writer, own.step); !claim) {
    writer.note_failed_claim(claim.error());
    return std::unexpected(claim.error());
  }
  DF_TRY(const SaveVerdict claimed, ranks.agree_on_save(own, make_identity));
  if (!claimed.claim) return claimed;
  return fail(ErrorCode::kBusy, "the run's directory changes while it is being claimed");
}

// Without it the agent seals this node's files, and the next job decides about them.
void Checkpointer::Impl::give_leader_an_heir() {
  if (!agent || !leads()) return;
  auto estate = nodes->estate();
  if (estate) return agent->lead(std::move(estate->handover), std::move(estate->listener));
  log_warning(fmt::format("no agent can commit with the other nodes in place of this process: {}",
                          estate.error().message()));
}

// Collective.
Status Checkpointer::Impl::start_parity() {
  DF_TRY(const auto group, agree_on_parity(*ranks.group(), *map, options.protect));
  if (!group) return {};
  const auto start = [&]() -> Status {
    DF_TRY(auto peers, nodes->peers(*group));
    const auto own = std::ranges::find(peers, map->own().ranks, &NodeParity::Peer::ranks);
    const auto place = static_cast<std::size_t>(own - peers.begin());
    DF_TRY(parity, NodeParity::start(
                       {.parity = *options.protect,
                        .group = std::move(peers),
                        .own = place,
                        .nodes = map->nodes().size(),
                        .leads = leads(),
                        .send = [to = nodes.get()](std::uint32_t rank, const LinkMessage& message) {
                          return to->send(rank, message);
                        }}));
    nodes->give_parity_to(*parity);
    return {};
  };
  return ranks.agree("protect", start());
}

CommitNode Checkpointer::Impl::commit_node() {
  if (!nodes || !leads()) return {};
  return [this](const Identity& identity, std::optional<Error> failure) {
    return nodes->commit({.identity = identity,
                          .commit_wait_max = std::min(options.commit_wait_max, kWaitMax),
                          .failure = std::move(failure)});
  };
}

}  // namespace deepfreeze

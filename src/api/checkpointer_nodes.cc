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

// This rank's part of the next.
Status Checkpointer::Impl::start_own_parity(const OwnParityGroup& group) {
  NodeParity::Settings settings{.parity = group.parity};
  DF_TRY(settings.group, nodes->peers(group.members));
  const auto own = std::ranges::find(settings.group, map->own().ranks, &NodeParity::Peer::ranks);
  settings.own = static_cast<std::size_t>(own - settings.group.begin());
  for (const JobNode& node : map->nodes()) settings.leaders.push_back(node.ranks.front());
  settings.leads = leads();
  settings.hold = parity_hold;
  if (options.protect) settings.parity.bytes_per_second = options.protect->bytes_per_second;
  settings.send = [to = nodes.get()](std::uint32_t rank, const LinkMessage& message) {
    return to->send(rank, message);
  };
  DF_TRY(parity, NodeParity::start(std::move(settings)));
  nodes->give_parity_to(*parity);
  return {};
}

// Collective.
Status Checkpointer::Impl::start_parity() {
  DF_TRY(const auto group, agree_on_parity(*ranks.group(), *map, options.protect));
  if (!group) return {};
  Status started;
  try {
    started = start_own_parity(*group);
  } catch (const std::exception& cause) {  // the others must hear of it
    started = std::unexpected(out_of_memory(cause));
  }
  return ranks.agree("protect", started);
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

#include "agreement/parity_round.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "agreement/leader_texts.h"
#include "base/log.h"
#include "base/message.h"
#include "base/try.h"
#include "protect/parity_groups.h"

namespace deepfreeze {
namespace {

std::string encode(const std::optional<Parity>& parity, const JobNode& node) {
  MessageWriter message;
  message.number(static_cast<std::uint64_t>(parity ? parity->data : 0));
  message.number(static_cast<std::uint64_t>(parity ? parity->parity : 0));
  message.text(parity && !parity->domain.empty() ? parity->domain : node.host);
  return message.take();
}

std::string words(const Parity& parity) {
  if (parity.data == 0) return "no protect";
  return fmt::format("protect with {} data and {} parity pieces", parity.data, parity.parity);
}

}  // namespace

Result<std::optional<OwnParityGroup>> agree_on_parity(RankGroup& ranks, const NodeMap& nodes,
                                                      const std::optional<Parity>& own) {
  DF_TRY(const std::vector<std::string> texts,
         share_leader_texts(ranks, nodes, "protect", encode(own, nodes.own())));
  std::vector<std::string> domains;
  Parity first;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    MessageReader message(texts[i]);
    Parity given{.data = message.number<std::uint64_t>(),
                 .parity = message.number<std::uint64_t>()};
    domains.emplace_back(message.text());
    DF_TRY_VOID(message.end());
    if (i == 0) first = given;
    if (given == first) continue;
    return fail(ErrorCode::kMismatch,
                fmt::format("protect: {} has {}, and {} has {}", place_of(nodes.nodes()[0]),
                            words(first), place_of(nodes.nodes()[i]), words(given)));
  }
  if (first.data == 0 && first.parity == 0) return std::nullopt;
  DF_TRY(const ParityGroups found, group_nodes(domains, first));
  if (ranks.rank() == 0 && !found.crowded_domain.empty()) {
    log_warning(
        fmt::format("protect: a group has several nodes of {}: if it fails, they are lost "
                    "together",
                    found.crowded_domain));
  }
  const auto own_place = static_cast<std::size_t>(std::ranges::find(nodes.nodes(), nodes.own()) -
                                                  nodes.nodes().begin());
  const auto group = std::ranges::find_if(found.groups, [&](const auto& members) {
    return std::ranges::find(members, own_place) != members.end();
  });
  return OwnParityGroup{.parity = first, .members = *group};
}

}  // namespace deepfreeze

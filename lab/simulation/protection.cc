#include "protection.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "base/checked_math.h"
#include "base/try.h"
#include "format/layout.h"
#include "protect/parity_layout.h"

namespace deepfreeze::simulation {

std::vector<std::uint64_t> node_bytes(const Scenario& scenario,
                                      const std::vector<std::uint64_t>& shares) {
  std::vector<std::uint64_t> bytes(scenario.machine.nodes);
  for (std::size_t rank = 0; rank < shares.size(); ++rank) {
    bytes[rank / scenario.machine.ranks_per_node] += shares[rank];
  }
  return bytes;
}

Result<std::optional<Protection>> Protection::make(const Scenario& scenario,
                                                   const std::vector<std::uint64_t>& shares) {
  const std::uint64_t nodes = scenario.machine.nodes;
  if (!scenario.protect || nodes == 1) return std::nullopt;
  std::vector<std::string> hosts;  // each one is a failure domain: the product's default
  for (std::uint64_t node = 0; node < nodes; ++node) hosts.push_back(fmt::format("{:05}", node));
  DF_TRY(ParityGroups made, group_nodes(hosts, *scenario.protect));
  Protection protection;
  protection.groups_ = std::move(made.groups);
  protection.parity_ = scenario.protect->parity;
  protection.bytes_ = node_bytes(scenario, shares);
  protection.group_of_.resize(nodes);
  for (std::size_t group = 0; group < protection.groups_.size(); ++group) {
    for (const std::size_t node : protection.groups_[group]) protection.group_of_[node] = group;
  }
  return protection;
}

std::uint64_t Protection::piece_bytes(std::uint64_t node) const {
  const auto& group = group_of(node);
  std::uint64_t longest = 0;
  for (const std::size_t member : group) longest = std::max(longest, bytes_[member]);
  const std::uint64_t chunks = group.size() - parity_;
  return round_up((longest + chunks - 1) / chunks, kBlockBytes);
}

std::vector<Source> Protection::chunks(std::uint64_t node, std::size_t row) const {
  const auto& group = group_of(node);
  const ParityLayout layout(group.size(), parity_);
  const auto own = static_cast<std::size_t>(std::ranges::find(group, node) - group.begin());
  const std::size_t stripe = layout.stripe_of_parity(own, row);
  const std::uint64_t chunk_bytes = piece_bytes(node);
  std::vector<Source> found;
  for (std::size_t chunk = 0; chunk < layout.data(); ++chunk) {
    const std::size_t member = group[layout.data_member(stripe, chunk)];
    const std::uint64_t begin = std::min(bytes_[member], chunk * chunk_bytes);
    const std::uint64_t bytes = std::min(chunk_bytes, bytes_[member] - begin);
    found.push_back({.place = member, .bytes = bytes});
  }
  return found;
}

std::vector<Source> Protection::pieces_of_lost(std::uint64_t lost) const {
  const auto& group = group_of(lost);
  const std::uint64_t needed = bytes_[lost] * (group.size() - parity_);
  std::vector<Source> found;
  for (const std::size_t member : group) {
    if (member != lost) found.push_back({.place = member, .bytes = needed / (group.size() - 1)});
  }
  return found;
}

}  // namespace deepfreeze::simulation

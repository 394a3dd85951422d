#include "protect/parity_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "base/printable.h"
#include "base/try.h"
#include "protect/erasure_code.h"

namespace deepfreeze {
namespace {

Status check(const Parity& parity, std::size_t nodes) {
  DF_TRY_VOID(ErasureCode::make(parity.data, parity.parity));
  if (nodes > parity.parity) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("protect: {} parity pieces need {} nodes at least, and the job has {}. "
                          "Use more nodes, less parity, or a farther tier",
                          parity.parity, parity.parity + 1, nodes));
}

// Rounded: 12 nodes by 8 are two groups of 6, 11 are one. A group must be solvable.
std::size_t count_groups(std::size_t nodes, const Parity& parity) {
  const std::size_t size = parity.data + parity.parity;
  std::size_t count = std::max<std::size_t>(1, (nodes + size / 2) / size);
  while (count > 1 && nodes / count < parity.parity + 1) --count;
  // No group may have more members than a code has pieces.
  while ((nodes + count - 1) / count > kPiecesMax) ++count;
  return count;
}

// Nodes of one domain are neighbours, and the largest domains come first.
std::vector<std::size_t> by_domain(std::span<const std::string> domains) {
  std::map<std::string_view, std::size_t> sizes;
  for (const std::string& domain : domains) ++sizes[domain];
  std::vector<std::size_t> order(domains.size());
  for (std::size_t node = 0; node < order.size(); ++node) order[node] = node;
  std::ranges::sort(order, {}, [&](std::size_t node) {
    return std::tuple(~sizes[domains[node]], std::string_view(domains[node]), node);
  });
  return order;
}

std::string find_crowded(const std::vector<std::vector<std::size_t>>& groups,
                         std::span<const std::string> domains) {
  for (const auto& group : groups) {
    std::map<std::string_view, std::size_t> sizes;
    for (const std::size_t node : group) {
      if (++sizes[domains[node]] == 2) return printable(domains[node]);
    }
  }
  return {};
}

}  // namespace

Result<ParityGroups> group_nodes(std::span<const std::string> domains, const Parity& parity) {
  DF_TRY_VOID(check(parity, domains.size()));
  ParityGroups result;
  const std::size_t count = count_groups(domains.size(), parity);
  if (domains.size() / count <= parity.parity) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("protect: {} nodes can't be divided into groups of {} at most with {} "
                            "parity pieces each",
                            domains.size(), kPiecesMax, parity.parity));
  }
  result.groups.resize(count);
  std::size_t next = 0;
  for (const std::size_t node : by_domain(domains)) {
    result.groups[next++ % result.groups.size()].push_back(node);
  }
  for (auto& group : result.groups) std::ranges::sort(group);
  result.crowded_domain = find_crowded(result.groups, domains);
  return result;
}

}  // namespace deepfreeze

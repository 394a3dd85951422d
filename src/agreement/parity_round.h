// The groups of nodes that protect each other (docs/decisions/0033). For the thread of the
// Checkpointer's caller.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "agreement/node_map.h"
#include "deepfreeze/options.h"
#include "deepfreeze/ranks.h"

namespace deepfreeze {

struct OwnParityGroup {
  Parity parity;                     // its numbers alone
  std::vector<std::size_t> members;  // by their places in nodes.nodes(), ascending
};

// Collective: the group of this rank's node; nothing if no rank wants parity. `own`:
// Options::protect; only the leaders' count. An error is every rank's: kMismatch if nodes differ in
// it but for the domain and the rate; kInvalidArgument as group_nodes(). Rank 0 warns if a group
// has several nodes of one domain.
[[nodiscard]] Result<std::optional<OwnParityGroup>> agree_on_parity(
    RankGroup& ranks, const NodeMap& nodes, const std::optional<Parity>& own);

}  // namespace deepfreeze

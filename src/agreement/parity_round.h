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

// Collective: the nodes of this rank's group, by their places in nodes.nodes(), ascending; nothing
// if no rank wants parity. `own`: Options::protect; only the leaders' count. An error is every
// rank's: kMismatch if nodes differ in it but for the domain and the rate; kInvalidArgument as
// group_nodes(). Rank 0 warns if a group has several nodes of one domain.
[[nodiscard]] Result<std::optional<std::vector<std::size_t>>> agree_on_parity(
    RankGroup& ranks, const NodeMap& nodes, const std::optional<Parity>& own);

}  // namespace deepfreeze

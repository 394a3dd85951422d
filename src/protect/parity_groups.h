// The division of a job's nodes into groups that protect each other. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "deepfreeze/options.h"

namespace deepfreeze {

struct ParityGroups {
  // Node numbers, ascending; each node is in one group.
  std::vector<std::vector<std::size_t>> groups;
  // Two nodes of this failure domain are in one group, so that they may be lost together; empty:
  // there is no such domain.
  std::string crowded_domain = {};
};

// `domains`: for each node the name of the unit that may fail as a whole and takes the node along,
// such as its host or its switch. Groups have about parity.data + parity.parity members each, never
// fewer than parity.parity + 1, and differ by one at most. Nodes of one domain are spread over as
// many groups as there are. kInvalidArgument: a number of zero, too many pieces for a code, or
// fewer nodes than parity.parity + 1.
[[nodiscard]] Result<ParityGroups> group_nodes(std::span<const std::string> domains,
                                               const Parity& parity);

}  // namespace deepfreeze

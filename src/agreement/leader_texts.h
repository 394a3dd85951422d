// Texts that the leaders of a job's nodes tell each other. For the thread of the Checkpointer's
// caller.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "agreement/node_map.h"
#include "deepfreeze/ranks.h"

namespace deepfreeze {

// Collective: one text of each leader, in the order of nodes.nodes(), for all ranks. `own` of a
// rank that leads no node is ignored. An error is every rank's: that of the first leader that has
// one. `call` as for ask_rank0().
[[nodiscard]] Result<std::vector<std::string>> share_leader_texts(RankGroup& ranks,
                                                                  const NodeMap& nodes,
                                                                  std::string_view call,
                                                                  const Result<std::string>& own);

}  // namespace deepfreeze

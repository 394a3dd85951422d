// Step C3 of docs/decisions/0026: nodes ask those that decide about their attempts in doubt. For
// the thread of the Checkpointer's caller.
#pragma once

#include "agreement/node_map.h"
#include "deepfreeze/ranks.h"
#include "storage/vfs.h"

namespace deepfreeze {

// Collective, once every node has aborted the attempts that it decides by itself. Places the
// answers in this node's directory `vfs`, and removes attempts that are aborted. An attempt whose
// deciding node is not in this job, or gives no answer that fits, stays in doubt. Errors are every
// rank's.
[[nodiscard]] Status settle_doubts_of_job(RankGroup& ranks, const NodeMap& nodes, Vfs& vfs);

}  // namespace deepfreeze

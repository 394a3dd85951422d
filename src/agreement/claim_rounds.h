// Steps C1 to C3 of docs/decisions/0026: the nodes of a job claim a run together. For the thread of
// the Checkpointer's caller.
#pragma once

#include <cstdint>

#include "agreement/node_map.h"
#include "deepfreeze/ranks.h"
#include "save/run_writer.h"
#include "storage/vfs.h"

namespace deepfreeze {

// Collective; `writer` is that of rank 0, the others' is not used. Rank 0 claims, all leaders place
// the same claim in their directories `vfs` and decide the attempts that are theirs to decide. Only
// when all have is anything done about attempts of other nodes. Every rank gets the claim. An error
// is every rank's, and then no claim holds. kFenced: another job has claimed.
[[nodiscard]] Result<GenerationRecord> claim_on_nodes(RankGroup& ranks, const NodeMap& nodes,
                                                      Vfs& vfs, RunWriter& writer,
                                                      std::uint64_t step);

}  // namespace deepfreeze

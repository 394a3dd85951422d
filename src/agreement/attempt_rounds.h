// The committed checkpoints on each node of a job, and the files of one of them. For the thread of
// the Checkpointer's caller.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "agreement/node_map.h"
#include "deepfreeze/ranks.h"
#include "format/names.h"
#include "storage/vfs.h"

namespace deepfreeze {

// Collective. `own`: the committed checkpoints in this node's directory, or why they can't be
// listed, which is then every rank's error; only the leaders' count. Returns those of all nodes, in
// the order of nodes.nodes().
[[nodiscard]] Result<std::vector<std::vector<AttemptName>>> share_attempts(
    RankGroup& ranks, const NodeMap& nodes, const Result<std::vector<AttemptName>>& own);

// For each sealed or parity file, and the manifest, the leaders of the nodes that have it,
// ascending.
using FilePlaces = std::map<std::string, std::vector<std::uint32_t>, std::less<>>;

// Collective: the sealed files of an attempt on all nodes. A node whose directory can't be listed
// has none: the others' copies may do.
[[nodiscard]] Result<FilePlaces> share_files(RankGroup& ranks, const NodeMap& nodes, Vfs& vfs,
                                             const AttemptName& attempt);

}  // namespace deepfreeze

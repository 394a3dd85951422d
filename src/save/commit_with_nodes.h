// How a save is committed if the nodes of its job have directories of their own.
#pragma once

#include <functional>
#include <optional>

#include "format/records.h"
#include "format/shard_header.h"

namespace deepfreeze {

// Commits for one node of several, as their leader, or reports that its own part has failed
// (nodes/commit_node.h).
using CommitNode =
    std::function<Result<Manifest>(const Identity& identity, std::optional<Error> failure)>;

}  // namespace deepfreeze

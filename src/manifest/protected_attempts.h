// The checkpoints that parity over nodes protects, as far as one node's directory tells
// (docs/decisions/0033). Stateless; any thread.
#pragma once

#include <vector>

#include "manifest/run_directory.h"

namespace deepfreeze {

// The newest that all nodes have protected, and those after it of which this node has parity: the
// other nodes may need them until a newer one is protected. No rule deletes them here before that.
[[nodiscard]] std::vector<AttemptName> protected_attempts(Vfs& vfs, const RunListing& listing);

}  // namespace deepfreeze

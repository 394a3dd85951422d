// The digits of a near directory among the nodes of a job (decision 0026). Stateless; any thread.
#pragma once

#include <optional>

#include "format/node_record.h"
#include "manifest/run_directory.h"
#include "storage/vfs.h"

namespace deepfreeze {

// The directory's own record. kNotFound; kCorrupt if it does not verify.
[[nodiscard]] Result<NodeRecord> read_node(Vfs& vfs);

// Tells whether it is there, for a listing. kUnsupported if it is of a newer format.
[[nodiscard]] Result<std::optional<NodeMarker>> find_node_marker(Vfs& vfs);

}  // namespace deepfreeze

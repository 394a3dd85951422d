// A run directory's memory of the passes that read and checked it. It is a hint: without it a pass
// reads more than needed. Stateless; any thread.
#pragma once

#include <string>

#include "format/scrub_record.h"
#include "storage/vfs.h"

namespace deepfreeze {

// Empty if there is no memory, if it does not verify, or if it is another run's. An error if the
// file in its place is not ours to replace: it can't be read, does not begin as a record of ours
// (kMismatch), or a newer version wrote it (kUnsupported).
[[nodiscard]] Result<ScrubRecord> recall_scrubs(Vfs& vfs, const std::string& run_id);

// Replaces the memory; durable on return. kInvalidArgument if it would be too large to be read
// again.
[[nodiscard]] Status remember_scrubs(Vfs& vfs, const ScrubRecord& record);

}  // namespace deepfreeze

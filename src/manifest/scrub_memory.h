// What a run's directory remembers of the passes that read and checked it. A hint: whoever loses
// it reads more than needed. Stateless; any thread.
#pragma once

#include <string>

#include "format/scrub_record.h"
#include "storage/vfs.h"

namespace deepfreeze {

// Empty where there is no memory, where it does not verify, and where it is another run's. An error
// where what stands in its place is not ours to replace: it can't be read, does not begin as a
// record of ours (kMismatch), or a newer version wrote it (kUnsupported).
[[nodiscard]] Result<ScrubRecord> recall_scrubs(Vfs& vfs, const std::string& run_id);

// In the place of what was remembered before; durable on return. kInvalidArgument where it would
// be too large to be read again.
[[nodiscard]] Status remember_scrubs(Vfs& vfs, const ScrubRecord& record);

}  // namespace deepfreeze

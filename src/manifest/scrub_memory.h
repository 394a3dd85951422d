// What a run's directory remembers of the passes that read and checked it. A hint: whoever loses
// it reads more than needed. Stateless; any thread.
#pragma once

#include <string>

#include "format/scrub_record.h"
#include "storage/vfs.h"

namespace deepfreeze {

// Empty where there is no memory, where it does not verify, and where it is another run's.
// kUnsupported: a newer version wrote it, and it is not ours to replace.
[[nodiscard]] Result<ScrubRecord> recall_scrubs(Vfs& vfs, const std::string& run_id);

// In the place of what was remembered before; durable on return.
[[nodiscard]] Status remember_scrubs(Vfs& vfs, const ScrubRecord& record);

}  // namespace deepfreeze

// Deletes one attempt, for callers that delete several and sync once. Stateless; any thread.
#pragma once

#include "format/names.h"
#include "storage/vfs.h"

namespace deepfreeze {

// Steps 1 to 5 of remove_attempts() (commit.h), for a decided attempt. The caller does step 6, the
// sync of the run's directory, after which deleted files cannot come back.
[[nodiscard]] Status remove_unsynced(Vfs& vfs, const AttemptName& name);

}  // namespace deepfreeze

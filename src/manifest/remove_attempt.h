// The deletion of one attempt, for who deletes several and syncs once. Stateless; any thread.
#pragma once

#include "format/names.h"
#include "storage/vfs.h"

namespace deepfreeze {

// Steps 1 to 5 of remove_attempts() (commit.h), of a decided attempt. What is gone does not come
// back once the run's directory has been synced (step 6), which is the caller's.
[[nodiscard]] Status remove_unsynced(Vfs& vfs, const AttemptName& name);

}  // namespace deepfreeze

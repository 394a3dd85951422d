// The run's record and its claims, which every tier has. Blocking; any thread.
#pragma once

#include "manifest/run_directory.h"
#include "storage/tier_store.h"

namespace deepfreeze {

// Copies deepfreeze.json and the claims that `to` lacks from `from`, of which `listing` was taken.
// Returns the listing of `to` from before, empty but for the run if `to` held no run.
// kMismatch: `to` holds another run. kFenced: `to` has a claim that `from` has not, so another
// process continues the run from there; nothing was copied then.
[[nodiscard]] Result<RunListing> copy_history(const RunListing& listing, Vfs& from, TierStore& to);

// kFenced if `to` has a claim now that `from` has not. Reads the names and the claims of both.
[[nodiscard]] Status check_same_history(Vfs& from, Vfs& to);

}  // namespace deepfreeze

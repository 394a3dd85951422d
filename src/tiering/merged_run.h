// One run on several tiers, seen as one. All but merge() read disks and block. Any thread.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "manifest/run_directory.h"
#include "storage/vfs.h"

namespace deepfreeze {

// The union of the tiers, nearest first, by attempt: a committed copy counts before one
// whose record does not verify. The claims are those of all tiers. Pure; `listings` is not empty.
[[nodiscard]] RunListing merge(std::span<const RunListing> listings);

// Copies to `near` the run's record and the claims that only `far` has: the run went on from
// another machine, or this directory is new. Does nothing if `far` holds no run. kMismatch: they
// hold different runs, or two processes have claimed one generation, each on one of them.
[[nodiscard]] Status adopt_history(Vfs& near, Vfs& far);

}  // namespace deepfreeze

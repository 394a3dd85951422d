// The invariants of a disk after any power cut or I/O error.
#pragma once

#include <optional>
#include <string>

#include "crash/run_life.h"

namespace deepfreeze {

// "name: finding", or empty if all hold:
//  run       the run opens under its id, and its file is whole
//  claim     a claim that was returned stands, and every committed generation has one
//  listed    nothing that is listed as committed fails to verify; no record is torn
//  acked     an acknowledged step is listed, unless its removal began; then a newer one is
//  best      if the best is kept, nothing acknowledged was better than the best that is listed
//  data      a header that verifies, sealed or not, has data that verifies
//  sealed    a part that was sealed is there and verifies, unless its removal began
//  removed   a removed attempt is gone; one that is being removed can't pass for undecided
//  doubt     an attempt that another directory decides has no outcome before its answer came
//  aborted   an aborted attempt is never committed or undecided again
[[nodiscard]] std::optional<std::string> broken_invariant(SimDisk& disk, const Promises& promises);

//  next      opening, claiming, saving and collecting work, and leave one step and no debris
// Changes the disk.
[[nodiscard]] std::optional<std::string> broken_future(SimDisk& disk, const Promises& promises);

}  // namespace deepfreeze

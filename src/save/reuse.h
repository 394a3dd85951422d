// The knowledge of a rank about tensors that do not change, from save to save.
#pragma once

#include "save/cold_files.h"
#include "save/cold_tensors.h"

namespace deepfreeze {

struct Reuse {
  explicit Reuse(ColdRules rules = {}, ColdLimits limits = {}) : tensors(rules), files(limits) {}

  ColdTensors tensors;  // of the thread that has the arena
  ColdFiles files;      // of the engine's worker
};

}  // namespace deepfreeze

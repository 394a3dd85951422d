// What a rank knows of the tensors that do not change, from save to save.
#pragma once

#include "save/cold_files.h"
#include "save/cold_tensors.h"

namespace deepfreeze {

struct Reuse {
  ColdTensors tensors;  // whoever has the arena
  ColdFiles files;      // the engine's worker
};

}  // namespace deepfreeze

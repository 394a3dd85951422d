// Verbs that need a framework: `python3 -m deepfreeze VERB` does them, in this process's place.
#pragma once

#include <string>
#include <vector>

#include "deepfreeze/result.h"

namespace deepfreeze {

// Takes the python3 that is installed beside this program, else the one on the PATH. Returns only
// if it can't be run. Nothing else of this process is left, so all output must be flushed.
[[nodiscard]] Error exec_python(const std::string& verb, const std::vector<std::string>& arguments);

}  // namespace deepfreeze

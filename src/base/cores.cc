#include "base/cores.h"

#include <sched.h>

#include <algorithm>

namespace deepfreeze {

std::size_t cores_of_this_process() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (::sched_getaffinity(0, sizeof cores, &cores) != 0) return 1;
  return static_cast<std::size_t>(std::max(1, CPU_COUNT(&cores)));
}

}  // namespace deepfreeze

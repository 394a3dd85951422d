#include "base/clock.h"

namespace deepfreeze {

std::int64_t wall_micros() {
  const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(since_epoch).count();
}

}  // namespace deepfreeze

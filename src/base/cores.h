// How many cores this process may use. Any thread.
#pragma once

#include <cstddef>

namespace deepfreeze {

// At least 1; a container's affinity counts, its quota does not.
[[nodiscard]] std::size_t cores_of_this_process();

}  // namespace deepfreeze

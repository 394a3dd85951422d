// The name of this machine.
#pragma once

#include <string>

namespace deepfreeze {

// Empty if the system does not tell it.
[[nodiscard]] std::string host_name();

}  // namespace deepfreeze

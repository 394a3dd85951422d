// The fail points of the product, from its own sources: those that a run has not passed can be
// named.
#pragma once

#include <set>
#include <string>

namespace deepfreeze {

[[nodiscard]] std::set<std::string> fail_points_of_sources();

}  // namespace deepfreeze

// Runs one scenario and returns its result.
#pragma once

#include <nlohmann/json.hpp>

#include "scenario.h"

namespace deepfreeze::simulation {

// In how many bins the load on the parallel file system is given.
inline constexpr std::size_t kLoadBins = 60;

// The answer of `deepfreeze_simulate`; README.md has its fields. One call at a time in a process.
[[nodiscard]] Result<nlohmann::ordered_json> simulate(const Scenario& scenario);

}  // namespace deepfreeze::simulation

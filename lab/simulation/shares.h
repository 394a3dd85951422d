// The bytes of the state that each rank writes, according to the product's own planner. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "scenario.h"

namespace deepfreeze::simulation {

[[nodiscard]] Result<std::uint64_t> state_bytes(const std::vector<TensorSpec>& tensors);

// The bytes that plan_shares() gives to each rank; they sum up to the state. Errors: its own.
[[nodiscard]] Result<std::vector<std::uint64_t>> share_bytes(const Scenario& scenario);

}  // namespace deepfreeze::simulation

// What each rank writes of the state, as the product's own planner says. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "scenario.h"

namespace deepfreeze::simulation {

[[nodiscard]] Result<std::uint64_t> state_bytes(const std::vector<TensorSpec>& tensors);

// By rank: the bytes that plan_shares() gives it; they sum up to the state. Errors: its own.
[[nodiscard]] Result<std::vector<std::uint64_t>> share_bytes(const Scenario& scenario);

}  // namespace deepfreeze::simulation

// How long a job takes to read its state again. Each kind is a simulation of its own.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "protection.h"
#include "scenario.h"

namespace deepfreeze::simulation {

// Seconds until the last node has all that it needs; nothing if there is no such copy.
struct RestoreSeconds {
  std::optional<double> near;      // all nodes have their files: only processes were lost
  std::optional<double> parity;    // the files of one node are calculated by those that need them
  std::optional<double> flushed;   // the files of one node come from the parallel file system
  std::optional<double> parallel;  // everything comes from there
};

// `shares`: by rank, empty without a plan. `protection` may be null. One call at a time in a
// process.
[[nodiscard]] RestoreSeconds simulate_restores(const Scenario& scenario, std::uint64_t state_bytes,
                                               const std::vector<std::uint64_t>& shares,
                                               const Protection* protection);

}  // namespace deepfreeze::simulation

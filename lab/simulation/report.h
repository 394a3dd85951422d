// The answer as JSON: sums and quantiles of the ledger's records. Pure.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

#include "ledger.h"
#include "pace.h"
#include "protection.h"
#include "restore.h"
#include "scenario.h"

namespace deepfreeze::simulation {

struct Outcome {
  std::uint64_t state_bytes = 0;
  std::vector<std::uint64_t> shares;  // by rank; empty if there is no plan
  const Protection* protection = nullptr;
  std::optional<RestoreSeconds> restore;
  double training_seconds = 0;  // until the last rank's last step
  double settled_seconds = 0;   // until nothing is in flight
};

[[nodiscard]] nlohmann::ordered_json report(const Scenario& scenario, const Pace& pace,
                                            const Ledger& ledger, const Outcome& outcome);

}  // namespace deepfreeze::simulation

#include "simulation.h"

#include <algorithm>
#include <utility>

#include "base/try.h"
#include "report.h"
#include "saver.h"
#include "shares.h"
#include "training.h"

namespace deepfreeze::simulation {

Result<nlohmann::ordered_json> simulate(const Scenario& scenario) {
  Outcome outcome;
  DF_TRY(outcome.state_bytes, state_bytes(scenario.workload.tensors));
  const bool planned = scenario.strategy == Strategy::kDeepFreeze;
  if (planned) {
    DF_TRY(outcome.shares, share_bytes(scenario));
  }
  const Pace pace(scenario);
  Ledger ledger(scenario.ranks(), scenario.saves);
  Platform platform(scenario, ledger);
  World world{scenario, pace, platform, ledger, outcome.state_bytes};
  const auto saver =
      planned ? make_deepfreeze_saver(world, outcome.shares) : make_baseline_saver(world);
  Training training(world, *saver);
  training.start();
  platform.run();
  if (training.ranks_done() != scenario.ranks()) {
    return fail(ErrorCode::kInternal, "the simulation stopped before all ranks had trained");
  }
  outcome.training_seconds = training.end_seconds();
  outcome.settled_seconds = platform.now();
  return report(scenario, pace, ledger, outcome);
}

}  // namespace deepfreeze::simulation

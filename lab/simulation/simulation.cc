#include "simulation.h"

#include <algorithm>
#include <utility>

#include "base/try.h"
#include "protection.h"
#include "report.h"
#include "restore.h"
#include "saver.h"
#include "shares.h"
#include "training.h"

namespace deepfreeze::simulation {
namespace {

Status train(const Scenario& scenario, const Pace& pace, Ledger& ledger, Outcome& outcome) {
  Platform platform(scenario, ledger);
  World world{scenario, pace, platform, ledger, outcome.state_bytes, outcome.protection};
  const auto saver = scenario.strategy == Strategy::kDeepFreeze
                         ? make_deepfreeze_saver(world, outcome.shares)
                         : make_baseline_saver(world);
  Training training(world, *saver);
  training.start();
  platform.run();
  if (training.ranks_done() != scenario.ranks()) {
    return fail(ErrorCode::kInternal, "the simulation stopped before all ranks had trained");
  }
  outcome.training_seconds = training.end_seconds();
  outcome.settled_seconds = platform.now();
  return {};
}

}  // namespace

Result<nlohmann::ordered_json> simulate(const Scenario& scenario) {
  Outcome outcome;
  DF_TRY(outcome.state_bytes, state_bytes(scenario.workload.tensors));
  if (scenario.strategy == Strategy::kDeepFreeze) {
    DF_TRY(outcome.shares, share_bytes(scenario));
  }
  DF_TRY(const auto protection, Protection::make(scenario, outcome.shares));
  outcome.protection = protection ? &*protection : nullptr;
  const Pace pace(scenario);
  Ledger ledger(
      {.ranks = scenario.ranks(), .nodes = scenario.machine.nodes, .saves = scenario.saves});
  DF_TRY_VOID(train(scenario, pace, ledger, outcome));
  if (scenario.restore) {
    outcome.restore =
        simulate_restores(scenario, outcome.state_bytes, outcome.shares, outcome.protection);
  }
  return report(scenario, pace, ledger, outcome);
}

}  // namespace deepfreeze::simulation

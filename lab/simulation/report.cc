#include "report.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "simulation.h"

namespace deepfreeze::simulation {
namespace {

using nlohmann::ordered_json;

ordered_json seconds_json(std::optional<double> seconds) {
  return seconds ? ordered_json(*seconds) : ordered_json(nullptr);
}

ordered_json save_json(const SaveRecord& save, double straggler_seconds_without) {
  return {{"start_seconds", save.start_seconds.value_or(0)},
          {"blocking_median_seconds", median(save.blocking_seconds)},
          {"blocking_max_seconds", std::ranges::max(save.blocking_seconds)},
          {"straggler_seconds", save.straggler_seconds},
          {"straggler_seconds_without", straggler_seconds_without},
          {"durable_local_seconds", seconds_json(save.local_seconds)},
          {"durable_parallel_seconds", seconds_json(save.parallel_seconds)},
          {"bytes", save.bytes}};
}

ordered_json shares_json(const std::vector<std::uint64_t>& shares) {
  if (shares.empty()) return nullptr;
  return {{"least", std::ranges::min(shares)}, {"most", std::ranges::max(shares)}};
}

}  // namespace

ordered_json report(const Scenario& scenario, const Pace& pace, const Ledger& ledger,
                    const Outcome& outcome) {
  ordered_json saves = ordered_json::array();
  for (std::size_t i = 0; i < ledger.saves().size(); ++i) {
    const std::uint64_t first_step = i * scenario.interval;
    const double without = pace.straggler_seconds(first_step, first_step + scenario.interval);
    saves.push_back(save_json(ledger.saves()[i], without));
  }
  const double bin_seconds = outcome.settled_seconds / kLoadBins;
  const double without = pace.training_seconds();
  const double added = outcome.training_seconds - without;
  return {{"simulated", true},
          {"strategy", strategy_name(scenario.strategy)},
          {"nodes", scenario.machine.nodes},
          {"ranks", scenario.ranks()},
          {"state_bytes", outcome.state_bytes},
          {"share_bytes", shares_json(outcome.shares)},
          {"training_seconds", outcome.training_seconds},
          {"training_seconds_without", without},
          {"run_time_ratio", outcome.training_seconds / without},
          {"save_seconds", added / static_cast<double>(scenario.saves)},
          {"settled_seconds", outcome.settled_seconds},
          {"saves", std::move(saves)},
          {"parallel_load",
           {{"peak_bandwidth", peak_of(ledger.transfers())},
            {"bin_seconds", bin_seconds},
            {"bytes", load_of(ledger.transfers(), bin_seconds, kLoadBins)}}}};
}

}  // namespace deepfreeze::simulation

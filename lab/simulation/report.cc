#include "report.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "protect/loss_odds.h"
#include "simulation.h"

namespace deepfreeze::simulation {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kLostMax = 8;

ordered_json seconds_json(std::optional<double> seconds) {
  return seconds ? ordered_json(*seconds) : ordered_json(nullptr);
}

ordered_json extremes_json(const std::vector<std::uint64_t>& bytes) {
  if (bytes.empty()) return nullptr;
  return {{"least", std::ranges::min(bytes)}, {"most", std::ranges::max(bytes)}};
}

ordered_json save_json(const SaveRecord& save, double straggler_seconds_without) {
  return {{"start_seconds", save.start_seconds.value_or(0)},
          {"blocking_median_seconds", median(save.blocking_seconds)},
          {"blocking_max_seconds", std::ranges::max(save.blocking_seconds)},
          {"straggler_seconds", save.straggler_seconds},
          {"straggler_seconds_without", straggler_seconds_without},
          {"durable_local_seconds", seconds_json(save.local_seconds)},
          {"durable_parallel_seconds", seconds_json(save.parallel_seconds)},
          {"protected_seconds", seconds_json(save.protected_seconds)},
          {"pulled_bytes", extremes_json(save.pulled_bytes)},
          {"sent_bytes", extremes_json(save.sent_bytes)},
          {"parity_bytes", extremes_json(save.parity_bytes)},
          {"bytes", save.bytes}};
}

// With the product's own odds: the checkpoint is gone if so many nodes, any of them, are lost.
ordered_json protection_json(const Protection* protection) {
  if (protection == nullptr) return nullptr;
  std::vector<std::size_t> sizes;
  std::size_t nodes = 0;
  for (const auto& group : protection->groups()) {
    sizes.push_back(group.size());
    nodes += group.size();
  }
  ordered_json odds = ordered_json::array();
  for (std::size_t lost = 0; lost <= std::min(nodes, kLostMax); ++lost) {
    odds.push_back(loss_of_many(sizes, protection->parity(), lost));
  }
  return {{"parity", protection->parity()},
          {"groups", protection->groups()},
          {"loss_by_lost_nodes", std::move(odds)}};
}

ordered_json restore_json(const std::optional<RestoreSeconds>& restore) {
  if (!restore) return nullptr;
  return {{"near_seconds", seconds_json(restore->near)},
          {"parity_seconds", seconds_json(restore->parity)},
          {"flushed_seconds", seconds_json(restore->flushed)},
          {"parallel_seconds", seconds_json(restore->parallel)}};
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
          {"share_bytes", extremes_json(outcome.shares)},
          {"training_seconds", outcome.training_seconds},
          {"training_seconds_without", without},
          {"run_time_ratio", outcome.training_seconds / without},
          {"save_seconds", added / static_cast<double>(scenario.saves)},
          {"settled_seconds", outcome.settled_seconds},
          {"saves", std::move(saves)},
          {"protection", protection_json(outcome.protection)},
          {"restore", restore_json(outcome.restore)},
          {"parallel_load",
           {{"peak_bandwidth", peak_of(ledger.transfers())},
            {"bin_seconds", bin_seconds},
            {"bytes", load_of(ledger.transfers(), bin_seconds, kLoadBins)}}}};
}

}  // namespace deepfreeze::simulation

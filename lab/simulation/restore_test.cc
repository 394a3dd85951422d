// Restores that can be computed by hand: 4 GB over 8 nodes, of which one is lost.
#include "restore.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "samples.h"

namespace deepfreeze::simulation {
namespace {

using nlohmann::ordered_json;

Scenario restored_scenario(Strategy strategy, bool sharded) {
  Scenario scenario = free_scenario(strategy, 8);
  scenario.restore = true;
  scenario.workload.sharded = sharded;
  if (strategy == Strategy::kDeepFreeze) {
    scenario.flush = true;
    scenario.protect = Parity{.data = 6, .parity = 2};
  }
  return scenario;
}

double restore_seconds(const Scenario& scenario, const char* name) {
  return answer(scenario).at("restore").at(name).get<double>();
}

TEST(Restore, OfAStateThatAllNodesNeedLoadsEachLinkWithMostOfIt) {
  Scenario scenario = restored_scenario(Strategy::kDeepFreeze, false);
  scenario.machine.network.bandwidth = kGB;
  expect_seconds(restore_seconds(scenario, "near_seconds"), 3.5);
  // The new node: 3.5 GB of the others' files, and six times the half gigabyte that is lost.
  expect_seconds(restore_seconds(scenario, "parity_seconds"), 3.5 + 3);
}

TEST(Restore, OfManyNodesLoadsNoLinkMoreThanOthers) {
  Scenario scenario = restored_scenario(Strategy::kDeepFreeze, false);
  scenario.machine.nodes = 16;
  scenario.machine.network.bandwidth = kGB;
  expect_seconds(restore_seconds(scenario, "near_seconds"), 3.75);
  scenario.machine.parallel.client_bandwidth = kFast;
  expect_seconds(restore_seconds(scenario, "flushed_seconds"), 4);  // with a quarter from there
}

TEST(Restore, OfShardsReadsTheNodesOwnDisk) {
  Scenario scenario = restored_scenario(Strategy::kDeepFreeze, true);
  scenario.machine.local.read_bandwidth = kGB / 4;
  expect_seconds(restore_seconds(scenario, "near_seconds"), 2);
  expect_seconds(restore_seconds(scenario, "flushed_seconds"), 2);
  // And of each other node's 3 GB / 7 for the new one.
  expect_seconds(restore_seconds(scenario, "parity_seconds"), 2 + 4.0 * 3 / 7);
  scenario.machine.local.read_bandwidth = kFast;
  scenario.machine.network.bandwidth = kGB;
  expect_seconds(restore_seconds(scenario, "near_seconds"), 0);
  expect_seconds(restore_seconds(scenario, "parity_seconds"), 3);
}

TEST(Restore, FromTheParallelFileSystemTakesWhatItsServersHave) {
  Scenario scenario = restored_scenario(Strategy::kDeepFreeze, false);
  scenario.machine.parallel.server_bandwidth = kGB;
  expect_seconds(restore_seconds(scenario, "flushed_seconds"), 8 * 0.5);
  expect_seconds(restore_seconds(scenario, "parallel_seconds"), 8 * 4);
  scenario.workload.sharded = true;
  expect_seconds(restore_seconds(scenario, "flushed_seconds"), 0.5);
  expect_seconds(restore_seconds(scenario, "parallel_seconds"), 4);
  scenario.machine.parallel.servers = 4;
  expect_seconds(restore_seconds(scenario, "parallel_seconds"), 1);
  scenario.machine.parallel.client_bandwidth = kGB / 4;
  expect_seconds(restore_seconds(scenario, "parallel_seconds"), 2);
}

TEST(Restore, OfRank0ReadsOnceAndPassesItOn) {
  for (const bool sharded : {false, true}) {
    Scenario scenario = restored_scenario(Strategy::kRank0, sharded);
    scenario.machine.parallel.server_bandwidth = kGB;
    scenario.machine.network.bandwidth = 2 * kGB;
    // Rank 0 keeps its own eighth of shards.
    expect_seconds(restore_seconds(scenario, "parallel_seconds"), 4 + (sharded ? 1.75 : 2));
    EXPECT_EQ(answer(scenario).at("restore").at("near_seconds"), nullptr);
    scenario.strategy = Strategy::kAllWrite;
    expect_seconds(restore_seconds(scenario, "parallel_seconds"), 8 * 4);
  }
}

TEST(Restore, IsSimulatedOnlyIfTheScenarioAsksForIt) {
  Scenario scenario = restored_scenario(Strategy::kDeepFreeze, false);
  scenario.flush = false;
  EXPECT_EQ(answer(scenario).at("restore").at("flushed_seconds"), nullptr);
  EXPECT_EQ(answer(scenario).at("restore").at("parallel_seconds"), nullptr);
  scenario.protect.reset();
  EXPECT_EQ(answer(scenario).at("restore").at("parity_seconds"), nullptr);
  scenario.restore = false;
  EXPECT_EQ(answer(scenario).at("restore"), nullptr);
}

}  // namespace
}  // namespace deepfreeze::simulation

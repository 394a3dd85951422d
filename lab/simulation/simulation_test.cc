// Cases that can be computed by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "samples.h"
#include "shares.h"

namespace deepfreeze::simulation {
namespace {

using nlohmann::ordered_json;

double local_seconds(std::uint64_t nodes) {
  Scenario scenario = free_scenario(Strategy::kDeepFreeze, nodes);
  scenario.machine.local.write_bandwidth = kGB;
  scenario.machine.seal_check_seconds = 0.01;
  return of_save(answer(scenario), "durable_local_seconds");
}

TEST(Simulation, OneRankTakesBytesByBandwidth) {
  for (const Strategy strategy : {Strategy::kRank0, Strategy::kAllWrite}) {
    Scenario scenario = free_scenario(strategy, 1);
    scenario.machine.parallel.server_bandwidth = kGB;
    const ordered_json found = answer(scenario);
    expect_seconds(of_save(found, "durable_parallel_seconds"), 4);
    expect_seconds(of_save(found, "blocking_median_seconds"), 4);
    expect_seconds(found.at("training_seconds").get<double>(), 6 * 10 + 2 * 4);
    expect_seconds(found.at("run_time_ratio").get<double>(), 68.0 / 60);
    EXPECT_TRUE(found.at("simulated").get<bool>());
  }
}

TEST(Simulation, ALinkThatIsSlowerThanTheServersBoundsANode) {
  Scenario scenario = free_scenario(Strategy::kRank0, 1);
  scenario.machine.parallel.servers = 8;
  scenario.machine.parallel.stripes = 8;
  scenario.machine.parallel.server_bandwidth = kGB;
  expect_seconds(of_save(answer(scenario), "durable_parallel_seconds"), 0.5);
  scenario.machine.parallel.client_bandwidth = 2 * kGB;
  expect_seconds(of_save(answer(scenario), "durable_parallel_seconds"), 2);
  scenario.machine.network.bandwidth = kGB;
  expect_seconds(of_save(answer(scenario), "durable_parallel_seconds"), 4);
}

TEST(Simulation, RanksThatAllWriteToOneFileSystemTakeAsManyTimesAsLong) {
  for (const std::uint64_t nodes : {2U, 16U}) {
    Scenario scenario = free_scenario(Strategy::kAllWrite, nodes);
    scenario.machine.parallel.server_bandwidth = kGB;
    const ordered_json found = answer(scenario);
    const double seconds = 4.0 * static_cast<double>(nodes);
    expect_seconds(of_save(found, "durable_parallel_seconds"), seconds);
    expect_seconds(of_save(found, "blocking_max_seconds"), seconds);
    EXPECT_EQ(found.at("saves").at(0).at("bytes").get<std::uint64_t>(), nodes * kStateBytes);
  }
}

TEST(Simulation, TheMetadataServerCreatesOneFileAfterAnother) {
  Scenario scenario = free_scenario(Strategy::kAllWrite, 16);
  scenario.machine.parallel.create_seconds = 0.5;
  scenario.machine.parallel.fsync_seconds = 0.25;
  expect_seconds(of_save(answer(scenario), "durable_parallel_seconds"), 16 * 0.5 + 0.25);
}

TEST(Simulation, Rank0CostsTheSameHoweverManyWaitForIt) {
  for (const std::uint64_t nodes : {3U, 64U}) {
    Scenario scenario = free_scenario(Strategy::kRank0, nodes);
    scenario.machine.parallel.server_bandwidth = kGB;
    const ordered_json found = answer(scenario);
    expect_seconds(of_save(found, "durable_parallel_seconds"), 4);
    expect_seconds(of_save(found, "blocking_median_seconds"), 4);  // those that wait
    expect_seconds(of_save(found, "straggler_seconds"), 4);
    expect_seconds(of_save(found, "straggler_seconds_without"), 0);
    expect_seconds(found.at("parallel_load").at("peak_bandwidth").get<double>(), kGB);
  }
}

TEST(Simulation, ACollectiveTakesALogarithmOfTheRanksAndTheGradients) {
  Scenario scenario = free_scenario(Strategy::kRank0, 64);
  scenario.machine.network = {.bandwidth = kGB, .latency_seconds = 0.01};
  scenario.machine.parallel.server_bandwidth = kGB;
  scenario.workload.gradient_bytes = 1'000'000'000;
  const double collective = 2 * 6 * 0.01 + 2.0 * 63 / 64;
  const ordered_json found = answer(scenario);
  expect_seconds(found.at("training_seconds_without").get<double>(), 6 * (10 + collective));
  expect_seconds(of_save(found, "blocking_median_seconds"), 4.01);  // and the latency
  const double training = 6 * (10 + collective) + 2 * 4.01;
  expect_seconds(found.at("training_seconds").get<double>(), training);
}

TEST(Simulation, AsynchronousBlocksForTheCopyAndWritesBehindTraining) {
  Scenario scenario = free_scenario(Strategy::kAsynchronous, 4);
  scenario.machine.copy_bandwidth = 2 * kGB;
  scenario.machine.serialize_bandwidth = 4 * kGB;
  scenario.machine.parallel.server_bandwidth = kGB;
  const ordered_json found = answer(scenario);
  expect_seconds(of_save(found, "blocking_max_seconds"), 2);
  expect_seconds(of_save(found, "durable_parallel_seconds"), 2 + 1 + 4);
  expect_seconds(found.at("training_seconds").get<double>(), 6 * 10 + 2 * 2);
}

TEST(Simulation, AsynchronousWaitsForTheWriteBefore) {
  Scenario scenario = free_scenario(Strategy::kAsynchronous, 2);
  scenario.machine.parallel.server_bandwidth = kGB / 10;  // 40 s, a save every 30 s
  const ordered_json found = answer(scenario);
  expect_seconds(of_save(found, "blocking_max_seconds", 0), 0);
  expect_seconds(of_save(found, "blocking_max_seconds", 1), 10);
}

TEST(Simulation, RanksOfANodeShareItsMemoryItsCoresAndItsDisk) {
  Scenario scenario = free_scenario(Strategy::kAllWrite, 1);
  scenario.machine.ranks_per_node = 8;
  scenario.machine.cores_per_node = 2;
  scenario.machine.serialize_bandwidth = kGB;  // 8 copies by 2 cores: 16 s
  scenario.machine.local.write_bandwidth = kGB;
  scenario.storage = Place::kLocal;
  expect_seconds(of_save(answer(scenario), "durable_local_seconds"), 16 + 32);
  scenario.strategy = Strategy::kDeepFreeze;
  scenario.machine.copy_bandwidth = kGB;
  scenario.machine.memory_bandwidth = kGB / 4;  // the whole state once: 16 s
  expect_seconds(of_save(answer(scenario), "durable_local_seconds"), 16);
}

TEST(Simulation, TheFenceWaitsForWhatForwardAndBackwardHaveNotHidden) {
  for (const double copy_seconds : {4.0, 8.0, 9.0, 20.0}) {
    Scenario scenario = free_scenario(Strategy::kDeepFreeze, 2);
    scenario.interval = 10;
    scenario.machine.copy_bandwidth = static_cast<double>(kStateBytes) / 2 / copy_seconds;
    const ordered_json found = answer(scenario);
    const double wait = std::max(0.0, copy_seconds - 8);
    expect_seconds(of_save(found, "blocking_median_seconds"), wait);
    expect_seconds(of_save(found, "durable_local_seconds"), copy_seconds);
    expect_seconds(found.at("training_seconds").get<double>(), 20 * 10 + 2 * wait);
  }
}

TEST(Simulation, DeepFreezeWritesWhatItHasCopiedMeanwhile) {
  Scenario scenario = free_scenario(Strategy::kDeepFreeze, 1);
  scenario.machine.copy_bandwidth = kGB;
  scenario.machine.local.write_bandwidth = kGB / 2;
  expect_seconds(of_save(answer(scenario), "durable_local_seconds"), 8);
}

TEST(Simulation, DeepFreezeIsDurableSoonerOnMoreNodesUntilTheCommitDominates) {
  expect_seconds(local_seconds(1), 4 + 0.01);
  expect_seconds(local_seconds(4), 1 + 4 * 0.01);
  expect_seconds(local_seconds(16), 0.25 + 16 * 0.01);
  EXPECT_LT(local_seconds(16), local_seconds(64)) << "64 files to check";
  expect_seconds(local_seconds(64), 0.0625 + 64 * 0.01);
}

TEST(Simulation, ACommitCostsTheNameOperationsOfTheProtocol) {
  Scenario scenario = free_scenario(Strategy::kDeepFreeze, 2);
  scenario.machine.local.create_seconds = 0.1;
  scenario.machine.local.fsync_seconds = 0.01;
  scenario.machine.call_seconds = 0.5;
  // Part and its rename, manifest and its rename; 3 syncs to be sealed, 2 to be published.
  const ordered_json found = answer(scenario);
  expect_seconds(of_save(found, "durable_local_seconds"), 0.5 + 4 * 0.1 + 5 * 0.01);
  expect_seconds(of_save(found, "blocking_median_seconds"), 0.5);
}

TEST(Simulation, TheFlushIsCommittedAfterTheNodesAndBlocksNobody) {
  Scenario scenario = free_scenario(Strategy::kDeepFreeze, 4);
  scenario.machine.local.write_bandwidth = kGB;
  scenario.machine.parallel.server_bandwidth = kGB;
  EXPECT_TRUE(answer(scenario).at("saves").at(0).at("durable_parallel_seconds").is_null());
  scenario.flush = true;
  const ordered_json found = answer(scenario);
  expect_seconds(of_save(found, "durable_local_seconds"), 1);
  expect_seconds(of_save(found, "durable_parallel_seconds"), 1 + 4);
  expect_seconds(of_save(found, "blocking_max_seconds"), 0);
  double load = 0;
  for (const auto& bytes : found.at("parallel_load").at("bytes")) load += bytes.get<double>();
  EXPECT_NEAR(load, 2.0 * kStateBytes, 1);
}

TEST(Simulation, AgreementsSealsAndNewsTakeTheNetworksLatency) {
  Scenario scenario = free_scenario(Strategy::kDeepFreeze, 4);
  scenario.flush = true;
  scenario.machine.network.latency_seconds = 0.1;
  const ordered_json found = answer(scenario);
  const double agreement = 2 * 2 * 0.1;
  expect_seconds(of_save(found, "blocking_median_seconds"), agreement);
  expect_seconds(of_save(found, "durable_local_seconds"), agreement + 0.1);
  // The news, the data and the seal.
  expect_seconds(of_save(found, "durable_parallel_seconds"), agreement + 0.1 + 0.4 + 0.1 + 0.1);
}

TEST(Simulation, DeepFreezeWaitsForTheSaveBefore) {
  Scenario scenario = free_scenario(Strategy::kDeepFreeze, 2);
  scenario.machine.local.write_bandwidth = kGB / 20;  // 40 s, a save every 30 s
  const ordered_json found = answer(scenario);
  expect_seconds(of_save(found, "blocking_max_seconds", 0), 0);
  expect_seconds(of_save(found, "blocking_max_seconds", 1), 10);
}

TEST(Simulation, ASaveBeginsOnAllRanksAtOnce) {
  Scenario scenario = free_scenario(Strategy::kDeepFreeze, 2);
  scenario.workload.tensors.clear();
  for (const char* key : {"a", "b", "c"}) {  // too small to be cut: one rank has two of them
    scenario.workload.tensors.push_back({.key = key, .dtype = DType::kU8, .shape = {1'000'000}});
  }
  scenario.interval = 1;
  scenario.machine.copy_bandwidth = 1e5;  // 20 s and 10 s, of which a window hides 8
  // The faster rank waits 10 s for the other, then 2 s in its fence; the slower one 12 s in its
  // own.
  expect_seconds(of_save(answer(scenario), "blocking_median_seconds"), 12);
}

TEST(Simulation, ReadingLimitsAFlushToo) {
  Scenario scenario = free_scenario(Strategy::kDeepFreeze, 1);
  scenario.flush = true;
  scenario.machine.local.read_bandwidth = kGB / 2;
  expect_seconds(of_save(answer(scenario), "durable_parallel_seconds"), 8);
}

TEST(Simulation, SlowRanksAreNotHeldAgainstASave) {
  Scenario scenario = free_scenario(Strategy::kDeepFreeze, 16);
  scenario.workload.jitter = 0.1;
  const ordered_json found = answer(scenario);
  expect_seconds(of_save(found, "blocking_max_seconds"), 0);
  const double straggler = of_save(found, "straggler_seconds_without");
  EXPECT_GT(straggler, 0.1);
  expect_seconds(of_save(found, "straggler_seconds"), straggler);
  expect_seconds(found.at("run_time_ratio").get<double>(), 1);
  const double seconds = found.at("training_seconds").get<double>();
  EXPECT_NEAR(answer(scenario).at("training_seconds").get<double>(), seconds, 1e-9) << "same seed";
  scenario.workload.seed = 1;
  EXPECT_GT(std::abs(answer(scenario).at("training_seconds").get<double>() - seconds), 1e-3);
}

TEST(Simulation, AStateWithoutBytesIsSavedToo) {
  for (const Strategy strategy :
       {Strategy::kRank0, Strategy::kAllWrite, Strategy::kAsynchronous, Strategy::kDeepFreeze}) {
    Scenario scenario = free_scenario(strategy, 3);
    scenario.workload.tensors[0].shape = {0, 4};
    scenario.machine.serialize_bandwidth = kGB;
    scenario.machine.local.fsync_seconds = 0.25;
    scenario.machine.parallel.fsync_seconds = 0.25;
    const bool local = scenario.storage == Place::kLocal;
    const char* name = local ? "durable_local_seconds" : "durable_parallel_seconds";
    expect_seconds(of_save(answer(scenario), name), local ? 5 * 0.25 : 0.25);
  }
}

TEST(Shares, AreThoseOfThePlanner) {
  Scenario scenario = free_scenario(Strategy::kDeepFreeze, 3);
  scenario.workload.tensors.push_back({.key = "b", .dtype = DType::kU8, .shape = {10}});
  const auto shares = share_bytes(scenario).value();
  ASSERT_EQ(shares.size(), 3U);
  EXPECT_EQ(shares[0] + shares[1] + shares[2], kStateBytes + 10);
  for (const std::uint64_t bytes : shares) EXPECT_EQ(bytes / 10'000'000, 133U);  // of 400
  scenario.workload.tensors.push_back(scenario.workload.tensors[0]);
  EXPECT_EQ(share_bytes(scenario).error().code(), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace deepfreeze::simulation

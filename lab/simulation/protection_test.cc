// Parity over nodes, in cases that can be computed by hand.
#include "protection.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "samples.h"

namespace deepfreeze::simulation {
namespace {

using nlohmann::ordered_json;

Scenario protected_scenario(std::uint64_t nodes, std::size_t data, std::size_t parity) {
  Scenario scenario = free_scenario(Strategy::kDeepFreeze, nodes);
  scenario.protect = Parity{.data = data, .parity = parity};
  return scenario;
}

void expect_bytes(const ordered_json& found, const char* name, double expected) {
  const ordered_json& bytes = found.at("saves").at(1).at(name);
  EXPECT_NEAR(bytes.at("least").get<double>(), expected, 1e-3 * expected) << name;
  EXPECT_NEAR(bytes.at("most").get<double>(), expected, 1e-3 * expected) << name;
}

// 4 GB over 8 nodes: B = 0.5 GB. Two pieces, each of six chunks of B / 6.
TEST(Protect, EachNodeReadsItsBytesAsOftenAsItHasParityPieces) {
  const ordered_json found = answer(protected_scenario(8, 6, 2));
  expect_bytes(found, "pulled_bytes", 1.0 * kGB);
  expect_bytes(found, "sent_bytes", 1.0 * kGB);
  expect_bytes(found, "parity_bytes", kGB / 6);
  const auto parity = found.at("saves").at(1).at("parity_bytes").at("most").get<std::uint64_t>();
  EXPECT_EQ(parity % (64 * 1024), 0U) << "whole blocks";
}

// Three tensors that are too small to be cut, on four nodes: chunks of 8 blocks, and what is left.
TEST(Protect, NothingIsReadBehindTheEndOfAMember) {
  Scenario scenario = protected_scenario(4, 6, 2);
  scenario.workload.tensors.clear();
  for (const char* key : {"a", "b", "c"}) {
    scenario.workload.tensors.push_back({.key = key, .dtype = DType::kU8, .shape = {1'000'000}});
  }
  const ordered_json save = answer(scenario).at("saves").at(1);
  EXPECT_EQ(save.at("sent_bytes").at("least"), 0);
  EXPECT_EQ(save.at("sent_bytes").at("most"), 2 * 1'000'000);
  EXPECT_EQ(save.at("parity_bytes").at("most"), 2 * 8 * 64 * 1024);
}

TEST(Protect, APartnerHasACopy) {
  const ordered_json found = answer(protected_scenario(8, 1, 1));
  EXPECT_EQ(found.at("protection").at("groups").size(), 4U);
  expect_bytes(found, "pulled_bytes", kGB / 2);
  expect_bytes(found, "sent_bytes", kGB / 2);
  expect_bytes(found, "parity_bytes", kGB / 2);
}

TEST(Protect, TakesBytesByTheBandwidthOfTheNetwork) {
  for (const std::size_t parity : {1U, 2U, 3U}) {
    Scenario scenario = protected_scenario(8, 8 - parity, parity);
    scenario.machine.network.bandwidth = kGB;
    scenario.machine.parallel.client_bandwidth = kGB / 100;  // not the way between nodes
    expect_seconds(of_save(answer(scenario), "protected_seconds"),
                   0.5 * static_cast<double>(parity));
  }
}

TEST(Protect, TakesBytesByTheBandwidthOfADisk) {
  Scenario scenario = protected_scenario(8, 6, 2);
  scenario.machine.local.read_bandwidth = kGB / 4;
  expect_seconds(of_save(answer(scenario), "protected_seconds"), 4);
  scenario.machine.local = {.write_bandwidth = kGB / 12, .read_bandwidth = kFast};
  const ordered_json found = answer(scenario);  // B, then B / 3
  expect_seconds(of_save(found, "durable_local_seconds"), 6);
  expect_seconds(of_save(found, "protected_seconds"), 8);
}

TEST(Protect, ReadingAndWritingShareADisk) {
  Scenario scenario = protected_scenario(8, 1, 1);
  scenario.machine.local = {.write_bandwidth = kGB, .read_bandwidth = kGB};
  expect_seconds(of_save(answer(scenario), "protected_seconds"), 0.5 + 0.5 + 0.5);
}

TEST(Protect, BlocksNobodyAndComesAfterTheCommit) {
  Scenario scenario = protected_scenario(8, 6, 2);
  scenario.machine.local.write_bandwidth = kGB / 2;  // 1 s, and 1/3 s
  scenario.machine.network.bandwidth = kGB;
  const ordered_json found = answer(scenario);
  expect_seconds(of_save(found, "durable_local_seconds"), 1);
  expect_seconds(of_save(found, "protected_seconds"), 2);
  expect_seconds(of_save(found, "blocking_max_seconds"), 0);
  EXPECT_EQ(found.at("saves").at(1).at("durable_parallel_seconds"), nullptr);
}

TEST(Protect, CostsTheMessagesAndNameOperationsOfTheProtocol) {
  Scenario scenario = protected_scenario(8, 6, 2);
  scenario.machine.network.latency_seconds = 0.1;
  const auto more = [&scenario] {
    const ordered_json found = answer(scenario);
    return of_save(found, "protected_seconds") - of_save(found, "durable_local_seconds");
  };
  expect_seconds(more(), 5 * 0.1);  // begin, two rows of pieces, written, all
  scenario.machine.network.latency_seconds = 0;
  scenario.machine.local.create_seconds = 0.1;
  scenario.machine.local.fsync_seconds = 0.01;
  expect_seconds(more(), 3 * 0.1 + 2 * 0.01);  // temporary file, name, mark; file, directory
}

// 50 s of parity, a save every 30 s: that of 60 s is overtaken by that of 90 s.
TEST(Protect, ComesToTheNewestCheckpointNext) {
  Scenario scenario = protected_scenario(8, 6, 2);
  scenario.saves = 4;
  scenario.machine.network.bandwidth = kGB / 50;
  const ordered_json found = answer(scenario);
  expect_seconds(of_save(found, "protected_seconds", 0), 50);
  expect_seconds(of_save(found, "protected_seconds", 1), 100 - 30);
  EXPECT_EQ(found.at("saves").at(2).at("protected_seconds"), nullptr);
  EXPECT_EQ(found.at("saves").at(2).at("pulled_bytes").at("most"), 0);
  expect_seconds(of_save(found, "protected_seconds", 3), 150 - 90);
}

TEST(Protect, SharesDisksAndLinksWithTheFlush) {
  Scenario scenario = protected_scenario(8, 6, 2);
  scenario.machine.local.read_bandwidth = kGB;
  scenario.flush = true;
  // Six readers of a twelfth of a gigabyte each, twice, and the flush: a seventh of the disk each.
  const ordered_json found = answer(scenario);
  expect_seconds(of_save(found, "protected_seconds"), 2 * 7.0 / 12);
  expect_seconds(of_save(found, "durable_parallel_seconds"), 1.5);
}

TEST(Protect, NodesOfSeveralRanksReadOnce) {
  Scenario scenario = protected_scenario(8, 6, 2);
  scenario.machine.ranks_per_node = 4;
  expect_bytes(answer(scenario), "pulled_bytes", 1.0 * kGB);
}

// Three of 16 nodes are in one of two groups of eight in 2 C(8, 3) of C(16, 3) cases.
TEST(Protect, GroupsAndOddsAreThoseOfTheProduct) {
  const ordered_json found = answer(protected_scenario(16, 6, 2)).at("protection");
  ASSERT_EQ(found.at("groups").size(), 2U);
  EXPECT_EQ(found.at("groups").at(0).size(), 8U);
  EXPECT_EQ(found.at("parity"), 2);
  const ordered_json& odds = found.at("loss_by_lost_nodes");
  ASSERT_EQ(odds.size(), 9U);
  EXPECT_EQ(odds.at(2), 0.0);
  EXPECT_NEAR(odds.at(3).get<double>(), 112.0 / 560, 1e-9);
}

TEST(Protect, OneNodeHasNoneAndTooFewAreRefused) {
  const ordered_json found = answer(protected_scenario(1, 6, 2));
  EXPECT_EQ(found.at("protection"), nullptr);
  EXPECT_EQ(found.at("saves").at(0).at("protected_seconds"), nullptr);
  const auto refused = simulate(protected_scenario(2, 6, 2));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kInvalidArgument);
}

TEST(Protect, AStateWithoutBytesIsProtectedToo) {
  Scenario scenario = protected_scenario(4, 6, 2);
  scenario.workload.tensors[0].shape = {0, 4};
  expect_seconds(of_save(answer(scenario), "protected_seconds"), 0);
}

}  // namespace
}  // namespace deepfreeze::simulation

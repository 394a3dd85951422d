// Scenarios whose answers can be computed by hand, for tests.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "scenario.h"
#include "simulation.h"

namespace deepfreeze::simulation {

inline constexpr double kGB = 1e9;
inline constexpr double kFast = 1e15;  // bytes a second: takes no time
inline constexpr std::uint64_t kStateBytes = 4'000'000'000;

// Only the steps that a test sets a cost for cost anything; the state is one tensor of 4 GB.
inline Scenario free_scenario(Strategy strategy, std::uint64_t nodes) {
  Scenario scenario;
  scenario.machine = {.nodes = nodes,
                      .ranks_per_node = 1,
                      .cores_per_node = 1,
                      .memory_bandwidth = kFast,
                      .copy_bandwidth = kFast,
                      .local = {.write_bandwidth = kFast, .read_bandwidth = kFast},
                      .parallel = {.servers = 1,
                                   .server_bandwidth = kFast,
                                   .client_bandwidth = kFast,
                                   .stripes = 1},
                      .network = {.bandwidth = kFast}};
  scenario.workload = {.tensors = {{.key = "w", .dtype = DType::kF32, .shape = {1'000'000, 1'000}}},
                       .step_seconds = 10,
                       .window_seconds = 8};
  scenario.strategy = strategy;
  scenario.storage = strategy == Strategy::kDeepFreeze ? Place::kLocal : Place::kParallel;
  scenario.saves = 2;
  scenario.interval = 3;
  return scenario;
}

inline nlohmann::ordered_json answer(const Scenario& scenario) {
  auto found = simulate(scenario);
  EXPECT_TRUE(found) << found.error().message();
  return found ? *found : nlohmann::ordered_json();
}

inline double of_save(const nlohmann::ordered_json& found, const char* name, std::size_t save = 1) {
  return found.at("saves").at(save).at(name).get<double>();
}

inline void expect_seconds(double found, double expected) {
  EXPECT_NEAR(found, expected, 1e-3 * expected + 1e-4);
}

}  // namespace deepfreeze::simulation

#include "scenario.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace deepfreeze::simulation {
namespace {

using nlohmann::json;

json valid() {
  return json::parse(R"({
    "machine": {
      "nodes": 4, "ranks_per_node": 2, "cores_per_node": 64, "memory_bandwidth": 9e10,
      "copy_bandwidth": 4e9, "serialize_bandwidth": 0, "call_seconds": 0.001,
      "seal_check_seconds": 0.0001,
      "local": {"write_bandwidth": 5e8, "read_bandwidth": 2e9, "create_seconds": 0.0001,
                "fsync_seconds": 0.001},
      "parallel": {"servers": 56, "server_bandwidth": 4e9, "client_bandwidth": 2e9, "stripes": 8,
                   "create_seconds": 0.0001, "fsync_seconds": 0.001},
      "network": {"bandwidth": 8e9, "latency_seconds": 1e-6}},
    "workload": {"tensors": [["w", "F32", [10, 20]], ["step", "I64", []]], "step_seconds": 1.0,
                 "window_seconds": 0.9, "jitter": 0.02, "seed": 7, "gradient_bytes": 800,
                 "sharded": true},
    "strategy": "deepfreeze", "storage": "local", "flush": true, "saves": 3, "interval": 5,
    "protect": {"data": 6, "parity": 2}, "restore": true})");
}

TEST(Scenario, ReadsEveryField) {
  const Scenario scenario = parse_scenario(valid().dump()).value();
  EXPECT_EQ(scenario.ranks(), 8U);
  EXPECT_EQ(scenario.steps(), 15U);
  EXPECT_EQ(scenario.machine.parallel.stripes, 8U);
  EXPECT_EQ(scenario.machine.local.fsync_seconds, 0.001);
  EXPECT_EQ(scenario.workload.tensors[0].shape, (Shape{10, 20}));
  EXPECT_EQ(scenario.workload.tensors[1].dtype, DType::kI64);
  EXPECT_EQ(scenario.workload.seed, 7U);
  EXPECT_TRUE(scenario.flush);
  EXPECT_TRUE(scenario.workload.sharded);
  EXPECT_EQ(scenario.protect, (Parity{.data = 6, .parity = 2}));
  EXPECT_TRUE(scenario.restore);
}

struct Bad {
  const char* pointer;
  const char* value;  // "": the field is missing
  const char* message;
};

class BadScenario : public testing::TestWithParam<Bad> {};

TEST_P(BadScenario, NamesFieldAndCause) {
  const Bad& bad = GetParam();
  json document = valid();
  const json::json_pointer pointer(bad.pointer);
  if (*bad.value == '\0') {
    document[pointer.parent_pointer()].erase(pointer.back());
  } else {
    document[pointer] = json::parse(bad.value);
  }
  const auto found = parse_scenario(document.dump());
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(found.error().message(), bad.message);
}

INSTANTIATE_TEST_SUITE_P(
    Fields, BadScenario,
    testing::Values(
        Bad{"/saves", "", "saves: missing"},
        Bad{"/saves", "0", "saves: 0 is not a whole number from 1 to 20000000"},
        Bad{"/interval", "20000000", "interval: ranks x saves x interval are more than 20000000"},
        Bad{"/flush", "1", "flush: not true or false"},
        Bad{"/strategy", "\"rank1\"", "strategy: no strategy \"rank1\""},
        Bad{"/strategy", "\"rank0\"",
            "flush: only of what deepfreeze has written to local storage"},
        Bad{"/protect", "3", "protect: not an object"}, Bad{"/protect", "", "protect: missing"},
        Bad{"/protect/data", "0", "protect.data: 0 is not a whole number from 1 to 128"},
        Bad{"/protect/parity", "129", "protect.parity: 129 is not a whole number from 1 to 128"},
        Bad{"/protect/pieces", "8", "protect.pieces: no such field"},
        Bad{"/restore", "null", "restore: not true or false"},
        Bad{"/storage", "\"tape\"", "storage: \"tape\" is not \"local\" or \"parallel\""},
        Bad{"/storage", "4", "storage: not a string"},
        Bad{"/machine", "[]", "machine: not an object"},
        Bad{"/machine/nodes", "-3", "machine.nodes: -3 is not a whole number from 1 to 65536"},
        Bad{"/machine/ranks_per_node", "20000",
            "machine.ranks_per_node: 20000 is not a whole number from 1 to 16384"},
        Bad{"/machine/copy_bandwidth", "0", "machine.copy_bandwidth: 0 is not above 0"},
        Bad{"/machine/call_seconds", "-1", "machine.call_seconds: -1 is below 0"},
        Bad{"/machine/local/read_bandwidth", "\"fast\"",
            "machine.local.read_bandwidth: not a number"},
        Bad{"/machine/local/speed", "1", "machine.local.speed: no such field"},
        Bad{"/machine/parallel/stripes", "57",
            "machine.parallel.stripes: 57 is not a whole number from 1 to 56"},
        Bad{"/workload/window_seconds", "1.5", "workload.window_seconds: longer than step_seconds"},
        Bad{"/workload/tensors", "[]", "workload.tensors: none"},
        Bad{"/workload/tensors", "3", "workload.tensors: not an array"},
        Bad{"/workload/tensors/1", "[\"x\", \"F32\"]",
            "workload.tensors[1]: not [name, dtype, shape]"},
        Bad{"/workload/tensors/0/1", "\"F31\"", "workload.tensors[0]: no dtype \"F31\""},
        Bad{"/workload/tensors/0/2/0", "-1", "workload.tensors[0]: shape has -1"}));

TEST(Scenario, OnlyFilesOfNodesAreProtected) {
  json document = valid();
  document["flush"] = false;
  document["storage"] = "parallel";
  EXPECT_EQ(parse_scenario(document.dump()).error().message(),
            "protect: only of what deepfreeze has written to local storage");
  document["protect"] = nullptr;
  EXPECT_FALSE(parse_scenario(document.dump()).value().protect);
  document["storage"] = "local";
  document["strategy"] = "rank0";
  EXPECT_EQ(parse_scenario(document.dump()).error().message(),
            "restore: only of what deepfreeze has written to local storage");
}

TEST(Scenario, RefusesWhatIsNoJsonObject) {
  for (const char* text : {"", "[1]", "{\"machine\": ", "4"}) {
    EXPECT_EQ(parse_scenario(text).error().message(), "not a JSON object") << text;
  }
}

}  // namespace
}  // namespace deepfreeze::simulation

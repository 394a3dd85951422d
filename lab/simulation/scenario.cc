#include "scenario.h"

#include <fmt/format.h>

#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/try.h"
#include "fields.h"
#include "protect/erasure_code.h"
#include "tensor/tensor_table.h"

namespace deepfreeze::simulation {
namespace {

using nlohmann::json;

constexpr std::array<std::pair<Strategy, std::string_view>, 4> kStrategies{{
    {Strategy::kRank0, "rank0"},
    {Strategy::kAllWrite, "all-write"},
    {Strategy::kAsynchronous, "asynchronous"},
    {Strategy::kDeepFreeze, "deepfreeze"},
}};
constexpr std::uint64_t kServersMax = 100'000;

Result<LocalStorage> read_local(const Fields& fields) {
  DF_TRY_VOID(
      fields.only({"write_bandwidth", "read_bandwidth", "create_seconds", "fsync_seconds"}));
  LocalStorage local;
  DF_TRY(local.write_bandwidth, fields.positive("write_bandwidth"));
  DF_TRY(local.read_bandwidth, fields.positive("read_bandwidth"));
  DF_TRY(local.create_seconds, fields.not_negative("create_seconds"));
  DF_TRY(local.fsync_seconds, fields.not_negative("fsync_seconds"));
  return local;
}

Result<ParallelStorage> read_parallel(const Fields& fields) {
  DF_TRY_VOID(fields.only({"servers", "server_bandwidth", "client_bandwidth", "stripes",
                           "create_seconds", "fsync_seconds"}));
  ParallelStorage parallel;
  DF_TRY(parallel.servers, fields.whole("servers", {1, kServersMax}));
  DF_TRY(parallel.server_bandwidth, fields.positive("server_bandwidth"));
  DF_TRY(parallel.client_bandwidth, fields.positive("client_bandwidth"));
  DF_TRY(parallel.stripes, fields.whole("stripes", {1, parallel.servers}));
  DF_TRY(parallel.create_seconds, fields.not_negative("create_seconds"));
  DF_TRY(parallel.fsync_seconds, fields.not_negative("fsync_seconds"));
  return parallel;
}

Result<Network> read_network(const Fields& fields) {
  DF_TRY_VOID(fields.only({"bandwidth", "latency_seconds"}));
  Network network;
  DF_TRY(network.bandwidth, fields.positive("bandwidth"));
  DF_TRY(network.latency_seconds, fields.not_negative("latency_seconds"));
  return network;
}

Result<Machine> read_machine(const Fields& fields) {
  DF_TRY_VOID(fields.only({"nodes", "ranks_per_node", "cores_per_node", "memory_bandwidth",
                           "copy_bandwidth", "serialize_bandwidth", "call_seconds",
                           "seal_check_seconds", "local", "parallel", "network"}));
  Machine machine;
  DF_TRY(machine.nodes, fields.whole("nodes", {1, kRanksMax}));
  DF_TRY(machine.ranks_per_node, fields.whole("ranks_per_node", {1, kRanksMax / machine.nodes}));
  DF_TRY(machine.cores_per_node, fields.whole("cores_per_node", {1, kRanksMax}));
  DF_TRY(machine.memory_bandwidth, fields.positive("memory_bandwidth"));
  DF_TRY(machine.copy_bandwidth, fields.positive("copy_bandwidth"));
  DF_TRY(machine.serialize_bandwidth, fields.not_negative("serialize_bandwidth"));
  DF_TRY(machine.call_seconds, fields.not_negative("call_seconds"));
  DF_TRY(machine.seal_check_seconds, fields.not_negative("seal_check_seconds"));
  DF_TRY(const Fields local, fields.object("local"));
  DF_TRY(machine.local, read_local(local));
  DF_TRY(const Fields parallel, fields.object("parallel"));
  DF_TRY(machine.parallel, read_parallel(parallel));
  DF_TRY(const Fields network, fields.object("network"));
  DF_TRY(machine.network, read_network(network));
  return machine;
}

// [name, dtype, shape]
Result<TensorSpec> read_tensor(const json& entry) {
  const auto refuse = [](std::string cause) {
    return fail(ErrorCode::kInvalidArgument, std::move(cause));
  };
  if (!entry.is_array() || entry.size() != 3 || !entry[0].is_string() || !entry[1].is_string() ||
      !entry[2].is_array()) {
    return refuse("not [name, dtype, shape]");
  }
  const auto dtype = dtype_from_name(entry[1].get<std::string>());
  if (!dtype) return refuse(fmt::format("no dtype {}", entry[1].dump()));
  TensorSpec spec{.key = entry[0].get<std::string>(), .dtype = *dtype};
  for (const json& extent : entry[2]) {
    if (!extent.is_number_unsigned()) return refuse(fmt::format("shape has {}", extent.dump()));
    spec.shape.push_back(extent.get<std::uint64_t>());
  }
  DF_TRY_VOID(check_spec(spec));
  return spec;
}

Result<std::vector<TensorSpec>> read_tensors(const Fields& fields) {
  DF_TRY(const json* entries, fields.array("tensors"));
  std::vector<TensorSpec> tensors;
  for (std::size_t i = 0; i < entries->size(); ++i) {
    auto spec = read_tensor((*entries)[i]);
    if (!spec) return fields.fault(fmt::format("tensors[{}]", i), spec.error().message());
    tensors.push_back(std::move(*spec));
  }
  if (tensors.empty()) return fields.fault("tensors", "none");
  return tensors;
}

Result<Workload> read_workload(const Fields& fields) {
  DF_TRY_VOID(fields.only({"tensors", "step_seconds", "window_seconds", "jitter", "seed",
                           "gradient_bytes", "sharded"}));
  constexpr Range kAny{0, std::numeric_limits<std::uint64_t>::max()};
  Workload workload;
  DF_TRY(workload.tensors, read_tensors(fields));
  DF_TRY(workload.step_seconds, fields.positive("step_seconds"));
  DF_TRY(workload.window_seconds, fields.positive("window_seconds"));
  DF_TRY(workload.jitter, fields.not_negative("jitter"));
  DF_TRY(workload.seed, fields.whole("seed", kAny));
  DF_TRY(workload.gradient_bytes, fields.whole("gradient_bytes", kAny));
  DF_TRY(workload.sharded, fields.flag("sharded"));
  if (workload.window_seconds > workload.step_seconds) {
    return fields.fault("window_seconds", "longer than step_seconds");
  }
  return workload;
}

Result<Place> read_place(const Fields& fields, std::string_view name) {
  DF_TRY(const std::string word, fields.text(name));
  if (word == "local") return Place::kLocal;
  if (word == "parallel") return Place::kParallel;
  return fields.fault(name, fmt::format("\"{}\" is not \"local\" or \"parallel\"", word));
}

// null: none
Result<std::optional<Parity>> read_protect(const Fields& fields) {
  if (fields.is_null("protect")) return std::nullopt;
  DF_TRY(const Fields protect, fields.object("protect"));
  DF_TRY_VOID(protect.only({"data", "parity"}));
  Parity parity;
  DF_TRY(parity.data, protect.whole("data", {1, kPiecesMax}));
  DF_TRY(parity.parity, protect.whole("parity", {1, kPiecesMax}));
  return parity;
}

Status check(const Fields& fields, const Scenario& scenario) {
  const bool near = scenario.strategy == Strategy::kDeepFreeze && scenario.storage == Place::kLocal;
  constexpr std::string_view kNearAlone = "only of what deepfreeze has written to local storage";
  if (scenario.flush && !near) return fields.fault("flush", kNearAlone);
  if (scenario.protect && !near) return fields.fault("protect", kNearAlone);
  if (scenario.restore && !near && scenario.storage == Place::kLocal) {
    return fields.fault("restore", kNearAlone);
  }
  if (scenario.steps() > kRankStepsMax / scenario.ranks()) {
    return fields.fault("interval",
                        fmt::format("ranks x saves x interval are more than {}", kRankStepsMax));
  }
  return {};
}

Result<Scenario> read_scenario(const Fields& fields) {
  DF_TRY_VOID(fields.only({"machine", "workload", "strategy", "storage", "flush", "protect",
                           "restore", "saves", "interval"}));
  Scenario scenario;
  DF_TRY(const Fields machine, fields.object("machine"));
  DF_TRY(scenario.machine, read_machine(machine));
  DF_TRY(const Fields workload, fields.object("workload"));
  DF_TRY(scenario.workload, read_workload(workload));
  DF_TRY(const std::string name, fields.text("strategy"));
  const auto strategy = strategy_from_name(name);
  if (!strategy) return fields.fault("strategy", fmt::format("no strategy \"{}\"", name));
  scenario.strategy = *strategy;
  DF_TRY(scenario.storage, read_place(fields, "storage"));
  DF_TRY(scenario.flush, fields.flag("flush"));
  DF_TRY(scenario.protect, read_protect(fields));
  DF_TRY(scenario.restore, fields.flag("restore"));
  DF_TRY(scenario.saves, fields.whole("saves", {1, kRankStepsMax}));
  DF_TRY(scenario.interval, fields.whole("interval", {1, kRankStepsMax}));
  DF_TRY_VOID(check(fields, scenario));
  return scenario;
}

}  // namespace

std::string_view strategy_name(Strategy strategy) {
  return kStrategies[static_cast<std::size_t>(strategy)].second;
}

std::optional<Strategy> strategy_from_name(std::string_view name) {
  for (const auto& [strategy, known] : kStrategies) {
    if (known == name) return strategy;
  }
  return std::nullopt;
}

Result<Scenario> parse_scenario(std::string_view text) {
  const json document = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object()) {
    return fail(ErrorCode::kInvalidArgument, "not a JSON object");
  }
  return read_scenario(Fields(document, ""));
}

}  // namespace deepfreeze::simulation

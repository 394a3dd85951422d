// The scenario of a simulation: a machine, a training on it, and how it saves. Value types.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "deepfreeze/options.h"
#include "deepfreeze/tensor.h"

namespace deepfreeze::simulation {

// Bounds of accepted scenarios: beyond them a run takes hours.
inline constexpr std::uint64_t kRanksMax = 65'536;
inline constexpr std::uint64_t kRankStepsMax = 20'000'000;

// Bandwidths are bytes a second, everywhere.
struct LocalStorage {  // of each node
  double write_bandwidth = 0;
  double read_bandwidth = 0;
  double create_seconds = 0;  // or to rename
  double fsync_seconds = 0;
};

struct ParallelStorage {
  std::uint64_t servers = 0;
  double server_bandwidth = 0;
  double client_bandwidth = 0;  // of one node
  std::uint64_t stripes = 0;    // servers that one file lies on
  double create_seconds = 0;    // or to rename; the metadata server does one after another
  double fsync_seconds = 0;
};

struct Network {
  double bandwidth = 0;  // of a node's interface
  double latency_seconds = 0;
};

struct Machine {
  std::uint64_t nodes = 0;
  std::uint64_t ranks_per_node = 0;
  std::uint64_t cores_per_node = 0;
  double memory_bandwidth = 0;     // that copies on one node have together
  double copy_bandwidth = 0;       // that one core copies with
  double serialize_bandwidth = 0;  // of one core, for the strategies that serialise; 0: no cost
  double call_seconds = 0;         // of DeepFreeze's save(), whatever the size and the ranks
  double seal_check_seconds = 0;   // rank 0's work in a commit for each file
  LocalStorage local;
  ParallelStorage parallel;
  Network network;
};

struct Workload {
  std::vector<TensorSpec> tensors;  // every rank has all of them
  double step_seconds = 0;
  double window_seconds = 0;  // of a step: forward and backward, parameters don't change
  double jitter = 0;          // deviation of the logarithm of a rank's window
  std::uint64_t seed = 0;
  std::uint64_t gradient_bytes = 0;  // that each step reduces over all ranks
  // A restore brings each node the part that it has saved, as in sharded training; else everything.
  bool sharded = false;
};

enum class Strategy : std::uint8_t { kRank0, kAllWrite, kAsynchronous, kDeepFreeze };
enum class Place : std::uint8_t { kLocal, kParallel };

struct Scenario {
  Machine machine;
  Workload workload;
  Strategy strategy = Strategy::kDeepFreeze;
  Place storage = Place::kLocal;  // the first place of a save
  bool flush = false;             // then copied from the nodes to the parallel file system
  std::optional<Parity> protect;  // then protected by parity on other nodes
  bool restore = false;           // after the training, the restores of a job that lost a node
  std::uint64_t saves = 0;
  std::uint64_t interval = 0;  // steps from one save to the next

  [[nodiscard]] std::uint64_t ranks() const { return machine.nodes * machine.ranks_per_node; }
  [[nodiscard]] std::uint64_t steps() const { return saves * interval; }
};

[[nodiscard]] std::string_view strategy_name(Strategy strategy);
[[nodiscard]] std::optional<Strategy> strategy_from_name(std::string_view name);

// kInvalidArgument: names the field and the cause.
[[nodiscard]] Result<Scenario> parse_scenario(std::string_view text);

}  // namespace deepfreeze::simulation

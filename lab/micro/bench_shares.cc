// The time to decide which rank writes which part of a state of 5,000 tensors, by the number of
// ranks.
#include <string>

#include "plan/layouts.h"
#include "plan/share_plan.h"
#include "suite.h"

namespace deepfreeze {
namespace {

const std::vector<std::int64_t> kRanks{8, 1024, 10'240};
// Every rank has a table of its own: 5 million boxes, 3 GB of them, at 1,024.
const std::vector<std::int64_t> kShardedRanks{8, 1024};
constexpr std::size_t kTensors = 5'000;
constexpr std::size_t kRanksPerNode = 8;

Job job_of(std::size_t ranks, std::size_t tables) {
  Job job(tables);
  for (std::size_t table = 0; table < tables; ++table) {
    for (std::size_t i = 0; i < kTensors; ++i) {
      const Shape shape = {8192 + i % 1000, 512 + i % 64};
      job.table(table).push_back(
          shard("layers." + std::to_string(i) + ".attention.weight.exp_avg", shape, table, tables));
    }
  }
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    job.add_rank(rank % tables, static_cast<std::uint32_t>(rank / kRanksPerNode));
  }
  return job;
}

void measure(benchmark::State& state, std::size_t ranks, std::size_t tables) {
  const Job job = job_of(ranks, tables);
  for (auto _ : state) {
    const auto made = plan_shares(job.ranks());
    if (!made) return refuse(state, made.error());
    benchmark::DoNotOptimize(made);
  }
  count_items(state, ranks * kTensors);
}

void replicated(benchmark::State& state, std::size_t ranks) { measure(state, ranks, 1); }

void hybrid(benchmark::State& state, std::size_t ranks) {
  measure(state, ranks, ranks / kRanksPerNode);
}

void sharded(benchmark::State& state, std::size_t ranks) { measure(state, ranks, ranks); }

}  // namespace

void add_shares(const Suite& suite) {
  suite.add("shares/replicated", kRanks, replicated);
  suite.add("shares/hybrid", kShardedRanks, hybrid);
  suite.add("shares/sharded", kShardedRanks, sharded);
}

}  // namespace deepfreeze

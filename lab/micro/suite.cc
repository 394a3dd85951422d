#include "suite.h"

namespace deepfreeze {

void Suite::add(const std::string& name, const std::vector<std::int64_t>& sizes, Body body) const {
  registered(name, sizes, body);
}

void Suite::add_threaded(const std::string& name, const std::vector<std::int64_t>& sizes,
                         Body body) const {
  registered(name, sizes, body).UseRealTime();
}

void Suite::add_manual(const std::string& name, const std::vector<std::int64_t>& sizes,
                       Body body) const {
  constexpr std::int64_t kIterations = 50;  // the time outside may be many times as long
  registered(name, sizes, body).UseManualTime()->Iterations(kIterations);
}

benchmark::internal::Benchmark& Suite::registered(const std::string& name,
                                                  const std::vector<std::int64_t>& sizes,
                                                  Body body) const {
  const auto measured = [body](benchmark::State& state) {
    body(state, static_cast<std::size_t>(state.range(0)));
  };
  auto& added = *benchmark::RegisterBenchmark(name.c_str(), measured);
  added.Unit(benchmark::kMicrosecond);
  for (const std::int64_t size : sizes) {
    added.Arg(size);
    if (is_smoke_) break;
  }
  return added;
}

void count_bytes(benchmark::State& state, std::uint64_t bytes_per_iteration) {
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes_per_iteration));
}

void count_items(benchmark::State& state, std::uint64_t items_per_iteration) {
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(items_per_iteration));
}

void refuse(benchmark::State& state, const Error& error) {
  state.SkipWithError(error.message().c_str());
}

}  // namespace deepfreeze

// The benchmarks of this program, and their sizes. Filled by main(); one thread.
#pragma once

#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "deepfreeze/result.h"

namespace deepfreeze {

class Suite {
 public:
  explicit Suite(bool is_smoke) : is_smoke_(is_smoke) {}

  using Body = void (*)(benchmark::State& state, std::size_t size);
  // `sizes`: the smallest first, which is the only one of a smoke run. Rates are by the processor
  // time of the calling thread, which others on the machine disturb least.
  void add(const std::string& name, const std::vector<std::int64_t>& sizes, Body body) const;
  // Rates are by wall time: other threads share the work, or are waited for.
  void add_threaded(const std::string& name, const std::vector<std::int64_t>& sizes,
                    Body body) const;
  // The body measures the time of each iteration.
  void add_manual(const std::string& name, const std::vector<std::int64_t>& sizes, Body body) const;

 private:
  benchmark::internal::Benchmark& registered(const std::string& name,
                                             const std::vector<std::int64_t>& sizes,
                                             Body body) const;

  const bool is_smoke_;
};

void add_capture(const Suite& suite);
void add_codec(const Suite& suite);
void add_commit(const Suite& suite);
void add_header(const Suite& suite);
void add_plan(const Suite& suite);
void add_queue(const Suite& suite);
void add_records(const Suite& suite);
void add_save(const Suite& suite);
void add_shares(const Suite& suite);

// Called once, after the loop.
void count_bytes(benchmark::State& state, std::uint64_t bytes_per_iteration);
void count_items(benchmark::State& state, std::uint64_t items_per_iteration);

// Makes the program fail. Return from the body after it.
void refuse(benchmark::State& state, const Error& error);

}  // namespace deepfreeze

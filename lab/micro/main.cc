// Measures each part of the core by itself.
//
//   deepfreeze_micro [--smoke] [--benchmark_filter=plan/ ...]
//
// Exit 1 if a benchmark reported an error or none ran, 2 for unknown arguments.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "suite.h"

namespace deepfreeze {
namespace {

// The library shows errors, but its exit status does not. Passes the figures on to the library's
// reporter.
class Verdict final : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context& context) override { return shown_.ReportContext(context); }
  void ReportRuns(const std::vector<Run>& runs) override {
    has_failed_ = has_failed_ || std::ranges::any_of(runs, [](auto& run) { return failed(run); });
    shown_.ReportRuns(runs);
  }
  void Finalize() override { shown_.Finalize(); }

  [[nodiscard]] bool has_failed() const { return has_failed_; }

 private:
  // The member has another name from version 1.8 of the library on.
  static bool failed(const auto& run) {
    if constexpr (requires { run.error_occurred; }) {
      return run.error_occurred;
    } else {
      return static_cast<bool>(run.skipped);
    }
  }

  benchmark::BenchmarkReporter& shown_ = *benchmark::CreateDefaultDisplayReporter();
  bool has_failed_ = false;
};

void add_all(const Suite& suite) {
  add_codec(suite);
  add_capture(suite);
  add_plan(suite);
  add_header(suite);
  add_commit(suite);
  add_records(suite);
  add_save(suite);
  add_shares(suite);
  add_queue(suite);
}

int run_micro(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);  // takes the arguments that it knows
  const std::span<char*> rest(argv + 1, static_cast<std::size_t>(argc) - 1);
  const bool is_smoke = !rest.empty() && rest.front() == std::string_view("--smoke");
  if (rest.size() > (is_smoke ? 1 : 0)) {
    benchmark::ReportUnrecognizedArguments(argc, argv);
    return 2;
  }
  add_all(Suite(is_smoke));
  Verdict verdict;
  const std::size_t run_count = benchmark::RunSpecifiedBenchmarks(&verdict);
  benchmark::Shutdown();
  return run_count == 0 || verdict.has_failed() ? 1 : 0;
}

}  // namespace
}  // namespace deepfreeze

int main(int argc, char** argv) { return deepfreeze::run_micro(argc, argv); }

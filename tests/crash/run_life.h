// The life of a run, told step by step on a simulated disk, and the promises made on the way.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/log.h"
#include "deepfreeze/options.h"
#include "format/records.h"
#include "manifest/run_directory.h"
#include "support/sim_disk.h"

namespace deepfreeze {

// The results that calls have returned as done: they must hold after any power cut from then on.
struct Promises {
  std::optional<std::string> run_id;
  bool run_file = false;  // and its file is whole
  std::vector<GenerationRecord> claims;
  std::vector<Identity> sealed;
  std::vector<Point> committed;
  std::vector<AttemptName> aborted;
  std::vector<AttemptName> in_doubt;  // sealed here, and decided by another directory
  std::vector<AttemptName> answered;  // not promised: an answer may have been placed
  std::vector<AttemptName> removing;  // not promised: their removal has begun
  std::vector<AttemptName> removed;
  bool keeps_best = false;           // by "loss", the smallest
  std::uint64_t attempts_begun = 0;  // not promised: it numbers the next one
};

// Every method ends at the first error, as the process would, and returns it.
class RunLife {
 public:
  explicit RunLife(SimDisk& disk) : disk_(disk) {}
  // Continues the run after a power cut: its promises still hold.
  RunLife(SimDisk& disk, Promises promises) : disk_(disk), promises_(std::move(promises)) {}

  [[nodiscard]] Status open();
  [[nodiscard]] Status claim();  // and goes on from the newest
  [[nodiscard]] Status claim_from(std::uint64_t step);
  [[nodiscard]] bool may_save() const { return generation_ > 0; }
  [[nodiscard]] Status abort_undecided_attempts();
  [[nodiscard]] Status abort_killed_at(std::string_view fail_point);
  [[nodiscard]] Status save(std::uint64_t step);
  [[nodiscard]] Status save_of_two_ranks(std::uint64_t step);
  [[nodiscard]] Status save_of_several_files(std::uint64_t step);
  [[nodiscard]] Status save_killed_at(std::uint64_t step, std::string_view fail_point);
  [[nodiscard]] Status seal_only(std::uint64_t step);
  // A near directory of a node from now on; the claims name the other node, which decides.
  void become_a_node();
  [[nodiscard]] Status claim_for_another_node();
  [[nodiscard]] Status seal_in_doubt(std::uint64_t step);
  // The answers for all that is in doubt, oldest first; an attempt that is aborted is removed.
  [[nodiscard]] Status take_answers(std::span<const Outcome> answers);
  [[nodiscard]] Status collect(std::size_t keep_last);
  [[nodiscard]] Status collect_but_best();  // and but the newest
  [[nodiscard]] Status collect_killed_at(std::size_t keep_last, std::string_view fail_point);
  void ruin_run_file();

  [[nodiscard]] const Promises& promises() const { return promises_; }
  // The run's activity at an operation.
  [[nodiscard]] std::string phase_at(std::size_t operation) const;

 private:
  void begin_phase(std::string text);
  [[nodiscard]] Status collect_by(const Keep& keep);
  void promise_run();
  [[nodiscard]] Status claim_from(std::optional<Point> point);
  [[nodiscard]] Status write(const Identity& identity);
  [[nodiscard]] Identity next_identity(std::uint64_t step, PartName part = {});

  struct Phase {
    std::size_t begin;
    std::string text;
  };

  SimDisk& disk_;
  Promises promises_;
  std::vector<Phase> phases_;
  std::string run_id_;
  std::uint64_t generation_ = 0;
};

// The beginning of the scenario's own errors: the run was not as its next step needs it.
inline constexpr std::string_view kScenarioIsOver = "the scenario is over: ";
struct Scenario {
  std::string name;
  std::function<Status(RunLife&)> run;
};
inline constexpr std::string_view kDiedBeforeItsSync = "killed before the last sync";
[[nodiscard]] const std::vector<Scenario>& scenarios();

// One test for each of them, e.g. "rolled_back".
class EachScenario : public testing::TestWithParam<std::size_t> {
 protected:
  EachScenario() {
    set_log_sink([](std::string_view) {});
  }  // repairs are expected
  ~EachScenario() override { set_log_sink({}); }
  [[nodiscard]] static const Scenario& scenario() { return scenarios().at(GetParam()); }
};
[[nodiscard]] std::string scenario_name(const testing::TestParamInfo<std::size_t>& info);

}  // namespace deepfreeze

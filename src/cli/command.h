// The verbs of the program, each in the cmd_*.cc of its name; cmd_python.cc has those done in
// Python.
#pragma once

#include <functional>

#include "cli/arguments.h"
#include "cli/console.h"
#include "deepfreeze/result.h"

namespace deepfreeze {

// One verb: its name and arguments, and the function that runs once they are parsed.
struct Command {
  Verb verb;
  std::function<Result<ExitCode>(Console&)> run;
};

[[nodiscard]] Command add_ls(Program& program);
[[nodiscard]] Command add_show(Program& program);
[[nodiscard]] Command add_log(Program& program);
[[nodiscard]] Command add_diff(Program& program);
[[nodiscard]] Command add_explain_divergence(Program& program);
[[nodiscard]] Command add_verify(Program& program);
[[nodiscard]] Command add_scrub(Program& program);
[[nodiscard]] Command add_doctor(Program& program);
[[nodiscard]] Command add_gc(Program& program);
[[nodiscard]] Command add_flush(Program& program);
[[nodiscard]] Command add_fetch(Program& program);
[[nodiscard]] Command add_rebuild(Program& program);
[[nodiscard]] Command add_fork(Program& program);
[[nodiscard]] Command add_tag(Program& program);
[[nodiscard]] Command add_tiers(Program& program);
[[nodiscard]] Command add_plan(Program& program);
[[nodiscard]] Command add_agent(Program& program);
[[nodiscard]] Command add_export(Program& program);
[[nodiscard]] Command add_import(Program& program);
[[nodiscard]] Command add_explore(Program& program);
[[nodiscard]] Command add_study(Program& program);
[[nodiscard]] Command add_try(Program& program);

}  // namespace deepfreeze

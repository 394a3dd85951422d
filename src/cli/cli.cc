#include "cli/cli.h"

#include <fmt/ostream.h>

#include <algorithm>
#include <exception>
#include <ostream>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/dcp_folder.h"
#include "cli/output.h"
#include "cli/python_verb.h"
#include "deepfreeze/version.h"

namespace deepfreeze {
namespace {

constexpr const char* kFooter =
    "RUN is a run's directory; RUN@STEP, RUN@latest or RUN@best names one of its\n"
    "checkpoints: the best by the rule of the run's keep, or RUN@best:METRIC:min|max.\n"
    "If RUN itself contains an '@', write RUN/@STEP.\n"
    "ls, show, diff, verify, scrub, doctor, gc and export also take a checkpoint that\n"
    "torch.distributed.checkpoint saved to a deepfreeze:// id, and a directory of such ids\n"
    "(docs/dcp.md).\n"
    "Exit: 0 good, 1 the check found a fault or a difference, 2 usage, 3 any other failure.";

std::string version_text() {
  return fmt::format("deepfreeze {}.{}.{}", DEEPFREEZE_VERSION_MAJOR, DEEPFREEZE_VERSION_MINOR,
                     DEEPFREEZE_VERSION_PATCH);
}

int report(const Error& error, const std::string& verb, Console& console) {
  fmt::print(console.err, "deepfreeze{}{}: {}\n", verb.empty() ? "" : " ", verb,
             readable(error.message()));
  if (console.json) {
    JsonWriter document = json_document(verb);
    document.key("error");
    write_error(document, error);
    print_json(console.out, std::move(document));
  }
  return error.code() == ErrorCode::kInvalidArgument ? kExitUsage : kExitFailure;
}

int flushed(int code, const std::string& verb, Console& console) {
  console.out.flush();
  if (console.out.good()) return code;
  return report(Error(ErrorCode::kIo, "write standard output: failed"), verb, console);
}

int run_verb(const Command& command, Console& console) {
  const std::string verb = command.verb.name();
  const auto code = command.run(console);
  if (!code) return report(code.error(), verb, console);
  return flushed(*code, verb, console);
}

Program make_program() {
  return {"deepfreeze", "Looks at, checks, tidies and imports checkpoints of training runs.",
          version_text(), kFooter};
}

std::vector<Command> add_verbs(Program& program, bool& json) {
  std::vector<Command> commands{add_ls(program),
                                add_show(program),
                                add_log(program),
                                add_diff(program),
                                add_explain_divergence(program),
                                add_verify(program),
                                add_scrub(program),
                                add_doctor(program),
                                add_gc(program),
                                add_flush(program),
                                add_fetch(program),
                                add_rebuild(program),
                                add_fork(program),
                                add_tag(program),
                                add_tiers(program),
                                add_plan(program),
                                add_agent(program),
                                add_export(program),
                                add_import(program),
                                add_explore(program),
                                add_try(program),
                                add_study(program)};
  for (Command& command : commands) {
    command.verb.flag("--json", json, "Print one JSON document instead of tables");
  }
  return commands;
}

int parse_and_run(int argc, const char* const* argv, Console& console) {
  const std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  if (is_of_dcp(words)) return report(exec_python("dcp", words), words[0], console);
  Program program = make_program();
  const std::vector<Command> commands = add_verbs(program, console.json);
  if (const auto exit = program.parse(argc, argv, console)) return flushed(*exit, "", console);
  for (const Command& command : commands) {
    if (command.verb.given()) return run_verb(command, console);
  }
  return kExitUsage;
}

}  // namespace

int run_cli(int argc, const char* const* argv, Console console) {
  // The core does not throw; the library for arguments may, if memory runs out.
  try {
    return parse_and_run(argc, argv, console);
  } catch (const std::exception& error) {
    fmt::print(console.err, "deepfreeze: {}\n", error.what());
    return kExitFailure;
  }
}

ProgramDescription describe_program() {
  Program program = make_program();
  bool json = false;
  add_verbs(program, json);
  return program.describe();
}

}  // namespace deepfreeze

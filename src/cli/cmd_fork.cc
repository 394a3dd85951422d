// deepfreeze fork RUN@STEP NEW: begins a run with a checkpoint of another one, without copying it.
#include <fmt/ostream.h>

#include <memory>
#include <ostream>

#include "base/try.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/output.h"
#include "cli/run_ref.h"
#include "object/object_place.h"
#include "tiering/fork.h"

namespace deepfreeze {
namespace {

struct ForkArguments {
  std::string from;
  std::string to;
};

void print_fork(const Forked& forked, const ForkArguments& arguments, Console& console) {
  const Manifest& manifest = forked.manifest;
  if (console.json) {
    JsonWriter document = json_document("fork");
    document.members("from", arguments.from, "to", arguments.to, "run_id", manifest.run_id, "step",
                     manifest.point.step, "directory",
                     attempt_dir_name({manifest.point.step, manifest.point.attempt_id}), "bytes",
                     stored_bytes(manifest), "bytes_copied", forked.bytes_copied);
    return print_json(console.out, std::move(document));
  }
  fmt::print(console.out, "{} begins with step {}, {}, {}\n", readable(arguments.to),
             manifest.point.step, human_bytes(stored_bytes(manifest)),
             forked.bytes_copied == 0
                 ? "shared by hard links"
                 : fmt::format("{} of it copied", human_bytes(forked.bytes_copied)));
}

Result<ExitCode> run_fork(const ForkArguments& arguments, Console& console) {
  DF_TRY(const RunRef ref, parse_run_ref(arguments.from));
  DF_TRY(const OpenedRun run, open_run(ref.path));
  DF_TRY(const Manifest wanted, choose(run, ref));
  DF_TRY(const std::string parent, absolute_place(ref.path));
  DF_TRY(const std::string to, absolute_place(arguments.to));
  DF_TRY(const Forked forked, fork_attempt(*run.vfs, wanted, parent, to));
  print_fork(forked, arguments, console);
  return kExitGood;
}

}  // namespace

Command add_fork(Program& program) {
  Verb verb = program.add_verb("fork", "Begin a new run with a checkpoint of another one");
  const auto arguments = std::make_shared<ForkArguments>();  // also held by the parser
  verb.value("RUN", arguments->from, "The run, RUN@STEP, RUN@best or RUN@latest").required();
  verb.value("NEW", arguments->to, "The new run's directory; made if there is none").required();
  verb.footer(
      "On one file system the files are linked, which takes no time and no room, and they stay if\n"
      "RUN deletes its checkpoint. Elsewhere they are copied, and every block is checked. NEW is "
      "a\n"
      "run of its own: restore() in it begins there.\n"
      "--json: {from, to, run_id, step, directory, bytes, bytes_copied}");
  return {verb, [arguments](Console& console) { return run_fork(*arguments, console); }};
}

}  // namespace deepfreeze

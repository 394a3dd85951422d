// deepfreeze import SOURCE RUN, explore RUN..., try, study EXPERIMENT...: verbs done in Python.
#include <ostream>

#include "cli/command.h"
#include "cli/console.h"
#include "cli/python_verb.h"

namespace deepfreeze {
namespace {

Command add_python_verb(Program& program, const char* name, const char* what) {
  Verb verb = program.add_verb(name, what);
  verb.takes_anything();
  return {verb, [verb](Console& console) -> Result<ExitCode> {
            std::vector<std::string> arguments = verb.rest();
            if (console.json) arguments.insert(arguments.begin(), "--json");
            console.out.flush();
            return std::unexpected(exec_python(verb.name(), arguments));
          }};
}

}  // namespace

Command add_import(Program& program) {
  return add_python_verb(
      program, "import",
      "Make a checkpoint from another library's files: DCP, torch.save, Keras, ...");
}

Command add_explore(Program& program) {
  return add_python_verb(program, "explore",
                         "Show runs, forks, and every tensor at every step, in a browser");
}

Command add_try(Program& program) {
  return add_python_verb(program, "try",
                         "Train a small network, kill it, resume it, and compare: 30 seconds");
}

Command add_study(Program& program) {
  return add_python_verb(
      program, "study",
      "Measure the cost, contents and safety of checkpoints here, by every writer");
}

}  // namespace deepfreeze

// deepfreeze import SOURCE RUN: what another library wrote becomes a checkpoint. Done in Python.
#include <ostream>

#include "cli/command.h"
#include "cli/console.h"
#include "cli/python_verb.h"

namespace deepfreeze {

Command add_import(Program& program) {
  Verb verb = program.add_verb(
      "import", "Make a checkpoint of what another library wrote: DCP, torch.save, Keras, ...");
  verb.takes_anything();
  return {verb, [verb](Console& console) -> Result<ExitCode> {
            std::vector<std::string> arguments = verb.rest();
            if (console.json) arguments.insert(arguments.begin(), "--json");
            console.out.flush();
            return std::unexpected(exec_python(verb.name(), arguments));
          }};
}

}  // namespace deepfreeze

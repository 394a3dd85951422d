// The `deepfreeze` program as a function, so that tests can call it.
#pragma once

#include "cli/console.h"
#include "cli/description.h"

namespace deepfreeze {

// Never throws; every failure is a message on `err` and an exit code.
[[nodiscard]] int run_cli(int argc, const char* const* argv, Console console);

// Describes all verbs; runs none.
[[nodiscard]] ProgramDescription describe_program();

}  // namespace deepfreeze

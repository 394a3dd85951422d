// Completions of verbs and options for shells. Pure.
#pragma once

#include <string>

#include "cli/description.h"

namespace deepfreeze {

[[nodiscard]] std::string bash_completion(const ProgramDescription& program);
[[nodiscard]] std::string zsh_completion(const ProgramDescription& program);
[[nodiscard]] std::string fish_completion(const ProgramDescription& program);

}  // namespace deepfreeze

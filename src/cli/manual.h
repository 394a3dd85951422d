// Manual pages of section 1, as text for groff. Pure.
#pragma once

#include <string>

#include "cli/description.h"

namespace deepfreeze {

[[nodiscard]] std::string manual_page(const ProgramDescription& program);
// The page deepfreeze-VERB.
[[nodiscard]] std::string manual_page(const ProgramDescription& program,
                                      const VerbDescription& verb);

}  // namespace deepfreeze

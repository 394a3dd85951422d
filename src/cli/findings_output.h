// The findings of a check, for people and for programs.
#pragma once

#include <iosfwd>
#include <nlohmann/json.hpp>

#include "inspect/checkup.h"

namespace deepfreeze {

void print_findings(std::ostream& out, const Findings& findings);
// The members good, records, attempts and notes.
[[nodiscard]] nlohmann::ordered_json findings_members(const Findings& findings);

}  // namespace deepfreeze

// The findings of a check, for people and for programs.
#pragma once

#include <iosfwd>

#include "inspect/checkup.h"
#include "json/json_writer.h"

namespace deepfreeze {

void print_findings(std::ostream& out, const Findings& findings);
// The members good, records, attempts and notes.
void write_findings_members(JsonWriter& json, const Findings& findings, bool good);

}  // namespace deepfreeze

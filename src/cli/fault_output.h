// Faults of stored bytes, for people and for programs.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "json/json_writer.h"
#include "restore/snapshot.h"

namespace deepfreeze {

void print_fault(std::ostream& out, const Fault& fault);
void write_fault(JsonWriter& json, const Fault& fault);

// The first few, and whether there are more.
[[nodiscard]] std::string some_of(const std::vector<std::string>& items);

}  // namespace deepfreeze

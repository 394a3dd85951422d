// Faults of stored bytes, for people and for programs.
#pragma once

#include <iosfwd>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "restore/snapshot.h"

namespace deepfreeze {

void print_fault(std::ostream& out, const Fault& fault);
[[nodiscard]] nlohmann::ordered_json faults_json(const std::vector<Fault>& faults);

// The first few, and whether there are more.
[[nodiscard]] std::string some_of(const std::vector<std::string>& items);

}  // namespace deepfreeze

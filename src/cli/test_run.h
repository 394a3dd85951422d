// For tests: one call of the program, and its output.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "cli/cli.h"
#include "inspect/reading.h"

namespace deepfreeze {

struct Answer {
  int code = 0;
  std::string out;
  std::string err;

  [[nodiscard]] bool says(std::string_view text) const {
    return out.find(text) != std::string::npos;
  }
  // Discarded (is_discarded()) if the output is not exactly one JSON document.
  [[nodiscard]] nlohmann::json json() const {
    return nlohmann::json::parse(out, nullptr, /*allow_exceptions=*/false);
  }
};

inline Answer call(const std::vector<std::string>& arguments) {
  std::vector<const char*> argv{"deepfreeze"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  std::ostringstream out;
  std::ostringstream err;
  const int code = run_cli(static_cast<int>(argv.size()), argv.data(), {.out = out, .err = err});
  return {.code = code, .out = out.str(), .err = err.str()};
}

// Calls with --json.
inline Answer call_json(std::vector<std::string> arguments) {
  arguments.emplace_back("--json");
  return call(arguments);
}

// A Watch that looks away.
inline OnProgress unwatched(const std::string&, std::uint64_t) {
  return [](std::uint64_t) {};
}

}  // namespace deepfreeze

// deepfreeze_simulate SCENARIO.json: one answer as JSON on stdout. Exit 2: the scenario is wrong.
#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "base/try.h"
#include "simulation.h"

namespace deepfreeze::simulation {
namespace {

Result<std::string> read_file(const char* path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file) return fail(ErrorCode::kInvalidArgument, "can't be read");
  return text;
}

Result<nlohmann::ordered_json> answer(const char* path) {
  DF_TRY(const std::string text, read_file(path));
  DF_TRY(const Scenario scenario, parse_scenario(text));
  return simulate(scenario);
}

int run(int argument_count, char** arguments) {
  if (argument_count != 2) {
    fmt::print(stderr, "usage: deepfreeze_simulate SCENARIO.json\n");
    return 2;
  }
  const auto found = answer(arguments[1]);
  if (!found) {
    fmt::print(stderr, "deepfreeze_simulate: {}: {}\n", arguments[1], found.error().message());
    return found.error().code() == ErrorCode::kInternal ? 1 : 2;
  }
  fmt::print("{}\n", found->dump());
  return 0;
}

}  // namespace
}  // namespace deepfreeze::simulation

int main(int argument_count, char** arguments) {
  return deepfreeze::simulation::run(argument_count, arguments);
}

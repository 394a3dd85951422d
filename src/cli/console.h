// What every verb of the program shares: where it writes, how it ends, how it is registered.
#pragma once

#include <CLI/App.hpp>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <nlohmann/json.hpp>
#include <string_view>

#include "deepfreeze/result.h"

namespace deepfreeze {

enum ExitCode : std::uint8_t {
  kExitGood = 0,
  kExitFault = 1,  // the check found a fault, the comparison a difference
  kExitUsage = 2,
  kExitFailure = 3,  // anything else, e.g. not a run directory
};

inline constexpr int kJsonFormat = 1;  // of every --json document
inline constexpr std::size_t kReadThreads = 4;

struct Console {
  std::ostream& out;
  std::ostream& err;
  bool err_is_terminal = false;  // progress bars only there
  bool json = false;
};

// One verb: its subcommand, and what it does once the arguments are parsed.
struct Command {
  CLI::App* app = nullptr;
  std::function<Result<ExitCode>(Console&)> run;
};

[[nodiscard]] Command add_ls(CLI::App& program);
[[nodiscard]] Command add_show(CLI::App& program);
[[nodiscard]] Command add_log(CLI::App& program);
[[nodiscard]] Command add_diff(CLI::App& program);
[[nodiscard]] Command add_verify(CLI::App& program);
[[nodiscard]] Command add_scrub(CLI::App& program);
[[nodiscard]] Command add_doctor(CLI::App& program);
[[nodiscard]] Command add_gc(CLI::App& program);
[[nodiscard]] Command add_export(CLI::App& program);

}  // namespace deepfreeze

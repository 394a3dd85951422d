// The output and the exit codes that all verbs of the program share.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>

namespace deepfreeze {

enum ExitCode : std::uint8_t {
  kExitGood = 0,
  kExitFault = 1,  // the check found a fault, the comparison a difference
  kExitUsage = 2,
  kExitFailure = 3,  // anything else, e.g. not a run directory
};

inline constexpr int kJsonFormat = 1;  // of every --json document

struct Console {
  std::ostream& out;
  std::ostream& err;
  bool err_is_terminal = false;  // progress bars only there
  bool json = false;
  std::optional<std::size_t> columns = {};  // of the terminal behind `out`; empty if it is no
                                            // terminal
};

}  // namespace deepfreeze

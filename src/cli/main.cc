#include <sys/ioctl.h>
#include <unistd.h>

#include <iostream>
#include <optional>

#include "cli/cli.h"

namespace {

// Empty if the output is a pipe or a file: those get every column.
std::optional<std::size_t> terminal_columns() {
  winsize size{};
  if (isatty(STDOUT_FILENO) != 1) return std::nullopt;
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-vararg): ioctl is called so
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return std::nullopt;
  return size.ws_col;
}

}  // namespace

int main(int argc, char** argv) {
  return deepfreeze::run_cli(argc, argv,
                             {.out = std::cout,
                              .err = std::cerr,
                              .err_is_terminal = isatty(STDERR_FILENO) == 1,
                              .columns = terminal_columns()});
}

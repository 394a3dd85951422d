// Starts a program that has nothing of this one but its environment: no descriptor, no blocked or
// ignored signal, no terminal of its own choice. Any thread.
#pragma once

#include <sys/types.h>

#include <span>

namespace deepfreeze {

struct SpawnApart {
  std::span<char* const> words;  // the program, searched for in PATH, and its arguments
  int output = -1;               // its standard output; below 0: /dev/null
  bool has_session = false;      // one of its own; else only a group of processes
};

// 0 and the process, or the error of posix_spawnp(). Its input and its error output are /dev/null.
[[nodiscard]] int spawn_apart(const SpawnApart& program, pid_t& child);

}  // namespace deepfreeze

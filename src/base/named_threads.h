// Starts the threads that copy, write and read. Any thread may call.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace deepfreeze {

// For a thread of our own, first of all: its name (15 characters at most). The program's signals
// are handled in its own threads, but for faults of this one; so a write beyond RLIMIT_FSIZE fails
// with EFBIG and does not end the program.
void enter_own_thread(const std::string& name);

// Threads named `name` (15 characters at most) that each run `body`, joined when the vector
// goes. Fewer than `count`, with a warning, where the system refuses more: the caller must be
// able to do the work alone. `body` must not throw.
[[nodiscard]] std::vector<std::jthread> start_threads(std::size_t count, const std::string& name,
                                                      const std::function<void()>& body);

}  // namespace deepfreeze

// Starts the threads that copy, write and read. Any thread may call.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace deepfreeze {

// The first call of every thread that we start. It sets the thread's name (15 characters at most)
// and blocks all signals except those for faults of the thread itself, so that the program handles
// its signals in its own threads. With SIGXFSZ blocked, a write beyond RLIMIT_FSIZE fails with
// EFBIG and does not end the program.
void enter_own_thread(const std::string& name);

// Lets training go first: from here on the calling thread, and those that it starts, have a
// niceness of 10 at least. Their cores stay those that the user has chosen.
void step_aside();

// Starts threads named `name` (15 characters at most) that each run `body`; the vector's destructor
// joins them. If the system refuses some of them, the vector is shorter than `count` and a warning
// is logged: the caller must be able to do the work alone. `body` must not throw.
[[nodiscard]] std::vector<std::jthread> start_threads(std::size_t count, const std::string& name,
                                                      const std::function<void()>& body);

}  // namespace deepfreeze

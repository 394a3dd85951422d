// Work that yields to everybody else.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace deepfreeze {

// Runs `work` in a thread of its own, with the lowest CPU and idle I/O priority, which the threads
// that it starts inherit; a thread that gave its priority up would not get it back. Returns the
// priorities that the system refused, as text for people.
[[nodiscard]] std::vector<std::string> run_idle(const std::function<void()>& work);

}  // namespace deepfreeze

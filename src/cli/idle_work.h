// Work that yields to everybody else.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace deepfreeze {

// Runs `work` in a thread of its own, with the lowest CPU and idle I/O priority, as have the
// threads that it starts; a thread that gave its priority up would not get it back. Returns what
// could not be had, for people.
[[nodiscard]] std::vector<std::string> run_idle(const std::function<void()>& work);

}  // namespace deepfreeze

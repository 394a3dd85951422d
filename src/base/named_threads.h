// Starts the threads that copy, write and read. Any thread may call.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace deepfreeze {

// Threads named `name` (15 characters at most) that each run `body`, joined when the vector
// goes. Fewer than `count`, with a warning, where the system refuses more: the caller must be
// able to do the work alone. `body` must not throw.
[[nodiscard]] std::vector<std::jthread> start_threads(std::size_t count, const std::string& name,
                                                      const std::function<void()>& body);

}  // namespace deepfreeze

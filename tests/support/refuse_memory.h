// Refuses allocations of one thread. It wraps the operator new that our code calls, not that of
// shared libraries. Linking it is enough to have it, so it is a library of its own.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string_view>
#include <vector>

namespace deepfreeze {

// While it lives `decide` is asked at each allocation of `thread`, by that thread, and true makes
// it throw bad_alloc. What `decide` allocates itself is granted. One at a time.
class MemoryRefusal {
 public:
  MemoryRefusal(pid_t thread, std::function<bool()> decide);
  ~MemoryRefusal();  // waits for the thread to be out of `decide`
  MemoryRefusal(const MemoryRefusal&) = delete;
  MemoryRefusal& operator=(const MemoryRefusal&) = delete;
};

// The threads of this process, in the order of their ids.
[[nodiscard]] std::vector<pid_t> threads_named(std::string_view name);

// The first of them; 0 if there is none of that name.
[[nodiscard]] pid_t thread_named(std::string_view name);

}  // namespace deepfreeze

// Runs code with one system call refused, as a sandbox or another file system would. Linux only.
#pragma once

#include <cstdint>
#include <functional>

namespace deepfreeze {

struct DeniedCall {
  long number = 0;  // SYS_openat2
  int os_errno = 0;
  // Denied only if this argument (its lower half), counted from 0, is within the bounds. The
  // sanitizers, for one, ask the kernel about memory by small writes.
  unsigned int argument = 2;
  std::uint32_t least = 0;
  std::uint32_t most = UINT32_MAX;
};

// `body` runs in a thread of its own, so that the refusal ends with it. False if this machine
// allows no seccomp filter: `body` has not run. A call that no filter can deny ends the process.
[[nodiscard]] bool run_with_denied(DeniedCall denied, const std::function<void()>& body);

}  // namespace deepfreeze

// Runs code with one system call refused, as a sandbox or another file system would. Linux only.
#pragma once

#include <functional>

namespace deepfreeze {

struct DeniedCall {
  long number = 0;  // SYS_openat2
  int os_errno = 0;
  // A write of fewer bytes is let through: the sanitizers ask the kernel about memory by small
  // ones.
  unsigned int write_bytes_min = 0;
};

// `body` runs in a thread of its own, so that the refusal ends with it. False where this machine
// allows no seccomp filter: `body` has not run.
[[nodiscard]] bool run_with_denied(DeniedCall denied, const std::function<void()>& body);

}  // namespace deepfreeze

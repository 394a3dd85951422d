#include "support/deny_syscall.h"

#include <linux/filter.h>
#include <linux/seccomp.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <thread>

#include "support/seccomp_filter.h"

namespace deepfreeze {
namespace {

// For this thread and for good.
bool deny_here(DeniedCall denied) {
  const auto number = static_cast<std::uint32_t>(denied.number);
  const std::uint32_t refusal = SECCOMP_RET_ERRNO | static_cast<std::uint32_t>(denied.os_errno);
  const auto argument = static_cast<std::uint32_t>(offsetof(seccomp_data, args) +
                                                   denied.argument * sizeof(std::uint64_t));
  std::array<sock_filter, 7> program = {{
      {BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)},
      {BPF_JMP | BPF_JEQ | BPF_K, 0, 4, number},
      {BPF_LD | BPF_W | BPF_ABS, 0, 0, argument},
      {BPF_JMP | BPF_JGE | BPF_K, 0, 2, denied.least},
      {BPF_JMP | BPF_JGT | BPF_K, 1, 0, denied.most},
      {BPF_RET | BPF_K, 0, 0, refusal},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
  }};
  return add_seccomp_filter(program).has_value();
}

}  // namespace

bool run_with_denied(DeniedCall denied, const std::function<void()>& body) {
  bool ran = false;
  std::jthread([&] {
    ran = deny_here(denied);
    if (ran) body();
  }).join();
  return ran;
}

}  // namespace deepfreeze

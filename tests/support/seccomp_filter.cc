#include "support/seccomp_filter.h"

#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace deepfreeze {
namespace {

std::optional<int> try_filter(std::span<sock_filter> program, unsigned int flags) {
  const sock_fprog filter = {.len = static_cast<unsigned short>(program.size()),
                             .filter = program.data()};
  const long given = ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &filter);
  if (given < 0) return std::nullopt;
  return static_cast<int>(given);
}

// Whether the machine takes a filter that cannot be wrong.
bool takes_any_filter(unsigned int flags) {
  std::array<sock_filter, 1> allow_all = {{{BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW}}};
  return try_filter(allow_all, flags).has_value();
}

}  // namespace

std::optional<int> add_seccomp_filter(std::span<sock_filter> program, unsigned int flags) {
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return std::nullopt;
  if (const auto given = try_filter(program, flags)) return given;
  const int refusal = errno;
  if (!takes_any_filter(flags)) return std::nullopt;
  std::fprintf(stderr, "this seccomp filter of ours is wrong: %s\n", std::strerror(refusal));
  std::abort();
}

}  // namespace deepfreeze

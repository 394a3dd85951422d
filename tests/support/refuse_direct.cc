#include "support/refuse_direct.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <thread>

#include "base/unique_fd.h"
#include "support/seccomp_filter.h"

namespace deepfreeze {
namespace {

constexpr int kPollMilliseconds = 20;

// Every pwrite() and pread() of this thread, for good, is first asked about at the descriptor
// returned.
UniqueFd ask_about_access() {
  std::array<sock_filter, 5> program = {{
      {BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)},
      {BPF_JMP | BPF_JEQ | BPF_K, 1, 0, SYS_pwrite64},
      {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, SYS_pread64},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_USER_NOTIF},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
  }};
  const auto listener = add_seccomp_filter(program, SECCOMP_FILTER_FLAG_NEW_LISTENER);
  return listener ? UniqueFd(*listener) : UniqueFd();
}

void answer_one(int listener) {
  seccomp_notif asked = {};
  if (::ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &asked) != 0) return;
  const int flags = ::fcntl(static_cast<int>(asked.data.args[0]), F_GETFL);
  const bool refused = flags >= 0 && (flags & O_DIRECT) != 0;
  seccomp_notif_resp answer = {};
  answer.id = asked.id;
  answer.error = refused ? -EINVAL : 0;
  answer.flags = refused ? 0 : SECCOMP_USER_NOTIF_FLAG_CONTINUE;
  ::ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
}

void answer_until(const std::atomic<bool>& done, int listener) {
  pollfd question = {.fd = listener, .events = POLLIN, .revents = 0};
  while (!done.load()) {
    if (::poll(&question, 1, kPollMilliseconds) > 0) answer_one(listener);
  }
}

}  // namespace

bool run_with_direct_access_refused(const std::function<void()>& body) {
  bool ran = false;
  std::jthread([&] {
    const UniqueFd listener = ask_about_access();
    if (!listener.valid()) return;
    std::atomic<bool> done{false};
    std::jthread answers([&] { answer_until(done, listener.get()); });
    body();
    done.store(true);
    ran = true;
  }).join();
  return ran;
}

}  // namespace deepfreeze

// While it lives, a write to a connection that the other side has closed ends with an error, and
// not with SIGPIPE: some TLS libraries write without MSG_NOSIGNAL. For the thread that has it.
#pragma once

#include <signal.h>

#include <ctime>

namespace deepfreeze {

class NoBrokenPipe {
 public:
  NoBrokenPipe() {
    ::sigemptyset(&pipe_);
    ::sigaddset(&pipe_, SIGPIPE);
    ::pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  NoBrokenPipe(const NoBrokenPipe&) = delete;
  NoBrokenPipe& operator=(const NoBrokenPipe&) = delete;
  ~NoBrokenPipe() {
    if (::sigismember(&before_, SIGPIPE) == 1) return;  // one that waits is the thread's own
    const timespec at_once = {};
    ::sigtimedwait(&pipe_, nullptr, &at_once);
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t pipe_ = {};
  sigset_t before_ = {};
};

}  // namespace deepfreeze

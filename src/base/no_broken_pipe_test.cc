#include "base/no_broken_pipe.h"

#include <gtest/gtest.h>

namespace deepfreeze {
namespace {

bool is_blocked() {
  sigset_t now;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &now);
  return ::sigismember(&now, SIGPIPE) == 1;
}

bool is_pending() {
  sigset_t waiting;
  ::sigpending(&waiting);
  return ::sigismember(&waiting, SIGPIPE) == 1;
}

TEST(NoBrokenPipe, TakesTheSignalAway) {
  {
    const NoBrokenPipe none;
    EXPECT_TRUE(is_blocked());
    ::raise(SIGPIPE);  // would end the program
    EXPECT_TRUE(is_pending());
  }
  EXPECT_FALSE(is_pending());
  EXPECT_FALSE(is_blocked());
}

TEST(NoBrokenPipe, LeavesTheSignalOfAThreadThatBlocksIt) {
  sigset_t pipe;
  ::sigemptyset(&pipe);
  ::sigaddset(&pipe, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
  ::raise(SIGPIPE);
  {
    const NoBrokenPipe none;
  }
  EXPECT_TRUE(is_pending());
  EXPECT_TRUE(is_blocked());
  const timespec at_once = {};
  EXPECT_EQ(::sigtimedwait(&pipe, nullptr, &at_once), SIGPIPE);
  ::pthread_sigmask(SIG_UNBLOCK, &pipe, nullptr);
}

}  // namespace
}  // namespace deepfreeze

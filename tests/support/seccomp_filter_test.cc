// A test that is left out tells nothing, so a mistake of ours must not look like a poor machine.
#include "support/seccomp_filter.h"

#include <gtest/gtest.h>
#include <linux/seccomp.h>
#include <sys/syscall.h>

#include <array>
#include <cerrno>

#include "support/deny_syscall.h"

namespace deepfreeze {
namespace {

class SeccompFilterTest : public testing::Test {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    if (!run_with_denied({.number = SYS_openat2, .os_errno = EPERM}, [] {})) {
      GTEST_SKIP() << "LEFT OUT: this machine allows no seccomp filter";
    }
  }
};

TEST_F(SeccompFilterTest, ACallThatCannotBeDeniedEndsTheTests) {
  const DeniedCall no_such_argument = {.number = SYS_openat2, .os_errno = EPERM, .argument = 6};
  EXPECT_DEATH((void)run_with_denied(no_such_argument, [] {}), "filter of ours is wrong");
}

TEST_F(SeccompFilterTest, AProgramWithoutAnEndIsWrongWhateverTheFlags) {
  std::array<sock_filter, 1> endless = {{{BPF_LD | BPF_W | BPF_ABS, 0, 0, 0}}};
  for (const unsigned int flags : {0U, unsigned{SECCOMP_FILTER_FLAG_NEW_LISTENER}}) {
    EXPECT_DEATH((void)add_seccomp_filter(endless, flags), "filter of ours is wrong") << flags;
  }
}

}  // namespace
}  // namespace deepfreeze

// The other cases are api's: tests of tiers that a user names.
#include "tiering/open_tiers.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>

#include <cerrno>
#include <vector>

#include "support/deny_syscall.h"
#include "support/scoped_dir.h"

namespace deepfreeze {
namespace {

TEST(OpenTiers, OneThatTakesNoFilesIsRefusedUnlessItIsOnlyRead) {
  const ScopedDir dir;
  const std::vector<Tier> tiers = {{.path = (dir.path() / "far").string()}};
  const auto run = dir.path() / "run";
  ASSERT_TRUE(open_tiers(run, tiers, false));
  const bool may_deny = run_with_denied({.number = SYS_faccessat2, .os_errno = EROFS}, [&] {
    const auto opened = open_tiers(run, tiers, false);
    ASSERT_FALSE(opened);
    EXPECT_EQ(opened.error().os_errno(), EROFS);
    EXPECT_TRUE(opened.error().message().contains("open tier " + tiers.front().path))
        << opened.error().message();
    EXPECT_TRUE(open_tiers(run, tiers, true));
  });
  if (!may_deny) GTEST_SKIP() << "LEFT OUT: no seccomp filter";
}

}  // namespace
}  // namespace deepfreeze

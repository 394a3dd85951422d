// The other cases are api's: tests of tiers that a user names.
#include "tiering/open_tiers.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>

#include <cerrno>
#include <vector>

#include "support/code_of.h"
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
  if (!may_deny) GTEST_SKIP() << "LEFT OUT: this machine allows no seccomp filter";
}

// Nothing is made, and no store is asked.
TEST(OpenTiers, PlacesThatLieInEachOtherAreRefusedFirst) {
  const ScopedDir dir;
  const std::string far = (dir.path() / "far").string();
  for (const auto& [first, second] :
       std::vector<std::pair<std::string, std::string>>{{"s3://bucket/a", "s3://bucket/a"},
                                                        {"s3://bucket/a", "s3://bucket/a/"},
                                                        {"s3://bucket/a/b", "s3://bucket/a"},
                                                        {"s3://bucket", "s3://bucket/a"},
                                                        {far, far + "/inner"}}) {
    const auto opened =
        open_tiers(dir.path() / "run", std::vector<Tier>{{.path = first}, {.path = second}}, false);
    EXPECT_EQ(code_of(opened), ErrorCode::kInvalidArgument) << first << " " << second;
    EXPECT_FALSE(std::filesystem::exists(far));
  }
}

TEST(OpenTiers, ADirectoryHasNoServer) {
  const ScopedDir dir;
  const std::string far = (dir.path() / "far").string();
  for (const Tier& tier :
       {Tier{.path = far, .endpoint = "https://store"}, Tier{.path = far, .region = "mars-1"}}) {
    const auto opened = open_tiers(dir.path() / "run", std::vector<Tier>{tier}, false);
    EXPECT_EQ(code_of(opened), ErrorCode::kInvalidArgument);
    EXPECT_FALSE(std::filesystem::exists(far));
  }
}

TEST(OpenTiers, PlacesThatOnlyBeginAlikeAreAskedForKeys) {
  const ScopedDir dir;
  int asked = 0;
  const KeySource keys = [&]() -> Result<ObjectKeys> {
    ++asked;
    return std::unexpected(Error(ErrorCode::kInvalidArgument, "no keys today"));
  };
  const std::vector<Tier> tiers = {{.path = "s3://bucket/a", .keys = keys},
                                   {.path = "s3://bucket/ab", .keys = keys}};
  const auto opened = open_tiers(dir.path() / "run", tiers, false);
  ASSERT_EQ(code_of(opened), ErrorCode::kInvalidArgument);
  EXPECT_TRUE(opened.error().message().starts_with("open tier s3://bucket/a: "));
  EXPECT_TRUE(opened.error().message().contains("no keys today"));
  EXPECT_EQ(asked, 1);
}

}  // namespace
}  // namespace deepfreeze

#include "ipc/private_directory.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "support/scoped_dir.h"

namespace deepfreeze {
namespace {

TEST(PrivateDirectory, IsMadeForThisUserAlone) {
  const ScopedDir dir;
  const auto path = dir.path() / "own";
  ASSERT_TRUE(make_private_directory(path));
  struct stat made = {};
  ASSERT_EQ(::stat(path.c_str(), &made), 0);
  EXPECT_EQ(made.st_mode & 07777, 0700U);
  EXPECT_TRUE(make_private_directory(path));  // and is taken as it is
}

TEST(PrivateDirectory, OneThatOthersMayEnterIsRefused) {
  const ScopedDir dir;
  const auto path = dir.path() / "open";
  ASSERT_EQ(::mkdir(path.c_str(), 0700), 0);
  for (const mode_t mode : {0710U, 0701U, 0720U}) {
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
    const Status refused = make_private_directory(path);
    ASSERT_FALSE(refused) << mode;
    EXPECT_EQ(refused.error().code(), ErrorCode::kUnsupported);
    EXPECT_NE(refused.error().message().find(path.string()), std::string::npos);
  }
}

TEST(PrivateDirectory, LinksFilesAndOthersDirectoriesAreRefused) {
  const ScopedDir dir;
  const auto path = dir.path() / "own";
  ASSERT_TRUE(make_private_directory(path));
  std::filesystem::create_directory_symlink(path, dir.path() / "link");
  EXPECT_FALSE(make_private_directory(dir.path() / "link"));
  if (::geteuid() != 0) GTEST_SKIP() << "LEFT OUT: only root can give a directory away";
  ASSERT_EQ(::chown(path.c_str(), 1, 1), 0);
  EXPECT_FALSE(make_private_directory(path));
}

TEST(PrivateDirectory, TheEnvironmentChoosesIt) {
  ::unsetenv("DEEPFREEZE_AGENT_DIR");
  ::unsetenv("XDG_RUNTIME_DIR");
  const ScopedDir dir;
  const std::string own = "deepfreeze-" + std::to_string(::geteuid());
  EXPECT_EQ(default_agent_directory(), std::filesystem::temp_directory_path() / own);
  ::setenv("TMPDIR", (dir.path() / "of-an-earlier-job").c_str(), 1);
  EXPECT_EQ(default_agent_directory(), std::filesystem::path("/tmp") / own);
  ::unsetenv("TMPDIR");
  ::setenv("XDG_RUNTIME_DIR", dir.path().c_str(), 1);
  EXPECT_EQ(default_agent_directory(), dir.path() / "deepfreeze");
  const auto elsewhere = dir.path() / "elsewhere";
  ::setenv("DEEPFREEZE_AGENT_DIR", elsewhere.c_str(), 1);
  EXPECT_EQ(default_agent_directory(), elsewhere);
  ::unsetenv("DEEPFREEZE_AGENT_DIR");
  ::unsetenv("XDG_RUNTIME_DIR");
}

}  // namespace
}  // namespace deepfreeze

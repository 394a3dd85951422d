#include "storage/secret_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "support/scoped_dir.h"

namespace deepfreeze {
namespace {

class SecretFile : public testing::Test {
 protected:
  std::string file(std::string_view text) {
    const auto path = folder_.path() / "file";
    std::ofstream(path) << text;
    return path.string();
  }
  static void expect_error(const std::string& path, ErrorCode code, std::string_view cause) {
    const auto text = read_secret_file(path, 10);
    ASSERT_FALSE(text);
    EXPECT_EQ(text.error().code(), code);
    EXPECT_EQ(text.error().message(), "read " + path + ": " + std::string(cause));
  }
  ScopedDir folder_;
};

TEST_F(SecretFile, IsReadWhole) {
  EXPECT_EQ(read_secret_file(file("0123456789"), 10).value(), "0123456789");
  EXPECT_EQ(read_secret_file(file(""), 10).value(), "");
  EXPECT_EQ(read_secret_file("/dev/null", 10).value(), "");
  const auto link = folder_.path() / "link";
  std::filesystem::create_symlink(file("0"), link);
  EXPECT_EQ(read_secret_file(link.string(), 10).value(), "0");
}

TEST_F(SecretFile, HasABound) {
  expect_error(file("0123456789x"), ErrorCode::kInvalidArgument, "it has more than 10 bytes");
  expect_error("/dev/zero", ErrorCode::kInvalidArgument, "it has more than 10 bytes");
}

TEST_F(SecretFile, MayBeAbsent) {
  const std::string path = file("");
  expect_error(path + "-none", ErrorCode::kNotFound, "No such file or directory");
  expect_error(path + "/below", ErrorCode::kNotFound, "Not a directory");
}

TEST_F(SecretFile, IsNoPipeAndNoDirectory) {
  const std::string pipe = (folder_.path() / "pipe").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  expect_error(pipe, ErrorCode::kInvalidArgument, "it is not a file");
  expect_error(folder_.path().string(), ErrorCode::kInvalidArgument, "it is not a file");
}

TEST_F(SecretFile, OtherFailuresAreNotAnAbsentFile) {
  const std::string path = file("");
  const std::string loop = (folder_.path() / "loop").string();
  std::filesystem::create_symlink(loop, loop);
  expect_error(loop, ErrorCode::kInvalidArgument, "Too many levels of symbolic links");
  // A file whose bytes can't be read.
  expect_error("/proc/self/mem", ErrorCode::kInvalidArgument, "Input/output error");
}

TEST_F(SecretFile, OfAnotherUserCountsAsAbsent) {
  if (::geteuid() != 0) GTEST_SKIP() << "LEFT OUT: only root can become another user";
  std::filesystem::permissions(folder_.path(), std::filesystem::perms::owner_all);
  const std::string path = file("");
  ASSERT_EQ(::seteuid(65'534), 0);
  expect_error(path, ErrorCode::kNotFound, "Permission denied");
  ASSERT_EQ(::seteuid(0), 0);
}

}  // namespace
}  // namespace deepfreeze

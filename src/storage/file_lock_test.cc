#include "storage/file_lock.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "support/code_of.h"
#include "support/scoped_dir.h"

namespace deepfreeze {
namespace {

class FileLockTest : public testing::Test {
 protected:
  FileLockTest() { std::ofstream file(path_); }

  const ScopedDir root_;
  const std::string path_ = (root_.path() / "file").string();
};

TEST_F(FileLockTest, OneHasIt) {
  auto lock = FileLock::take(path_);
  ASSERT_TRUE(lock);
  EXPECT_TRUE(FileLock::is_taken(path_));
  EXPECT_EQ(code_of(FileLock::take(path_)), ErrorCode::kBusy);
  FileLock moved = *std::move(lock);
  EXPECT_TRUE(FileLock::is_taken(path_));
  moved = FileLock();
  EXPECT_FALSE(FileLock::is_taken(path_));
  EXPECT_TRUE(FileLock::take(path_));
}

TEST_F(FileLockTest, ItGoesAlsoIfAChildWasForked) {
  auto lock = FileLock::take(path_);
  ASSERT_TRUE(lock);
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  *lock = FileLock();
  EXPECT_FALSE(FileLock::is_taken(path_));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST_F(FileLockTest, ItGoesWithItsProcess) {
  const pid_t child = ::fork();
  if (child == 0) {
    const auto lock = FileLock::take(path_);
    ::pause();
    ::_exit(0);
  }
  while (!FileLock::is_taken(path_)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE(FileLock::is_taken(path_));
}

TEST_F(FileLockTest, NobodyKnowsOfAFileThatIsNotThere) {
  EXPECT_EQ(code_of(FileLock::take(path_ + "2")), ErrorCode::kNotFound);
  EXPECT_FALSE(FileLock::is_taken(path_ + "2"));
}

}  // namespace
}  // namespace deepfreeze

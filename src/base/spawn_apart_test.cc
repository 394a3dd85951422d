#include "base/spawn_apart.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string>

#include "base/unique_fd.h"

namespace deepfreeze {
namespace {

// The output of a shell's script, whose process has ended well.
std::string output_of(std::string script, bool has_session = false) {
  std::array<int, 2> pipe{};
  EXPECT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
  const UniqueFd from(pipe[0]);
  UniqueFd into(pipe[1]);
  std::string shell = "sh";
  std::string option = "-c";
  std::array<char*, 3> words = {shell.data(), option.data(), script.data()};
  pid_t child = 0;
  EXPECT_EQ(spawn_apart({.words = words, .output = into.get(), .has_session = has_session}, child),
            0);
  into = UniqueFd();
  std::string output;
  std::array<char, 4096> bytes{};
  for (ssize_t count = 0; (count = ::read(from.get(), bytes.data(), bytes.size())) > 0;) {
    output.append(bytes.data(), static_cast<std::size_t>(count));
  }
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << output;
  return output;
}

TEST(SpawnApart, NoSignalIsBlockedOrIgnored) {
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, &before);
  const auto handled = ::signal(SIGUSR1, SIG_IGN);
  const std::string masks = output_of("grep -E 'SigBlk|SigIgn' /proc/self/status");
  ::signal(SIGUSR1, handled);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  unsigned long long blocked = 1;
  unsigned long long ignored = ~0ULL;
  ASSERT_EQ(std::sscanf(masks.c_str(), "SigBlk: %llx SigIgn: %llx", &blocked, &ignored), 2);
  EXPECT_EQ(blocked, 0U);
  EXPECT_EQ(ignored & 1ULL << (SIGUSR1 - 1), 0U);  // the C library has two of its own
}

TEST(SpawnApart, NoDescriptorGoesAlong) {
  const UniqueFd kept(::open("/", O_RDONLY));  // without O_CLOEXEC
  const UniqueFd input(::dup(STDIN_FILENO));
  ASSERT_TRUE(kept.valid() && input.valid());
  ASSERT_EQ(::dup2(kept.get(), STDIN_FILENO), STDIN_FILENO);
  // "ls" has one more: that of the directory.
  const std::string seen = output_of("ls /proc/self/fd | wc -l; readlink /proc/self/fd/0; cat");
  ASSERT_EQ(::dup2(input.get(), STDIN_FILENO), STDIN_FILENO);
  EXPECT_EQ(seen, "4\n/dev/null\n");
}

TEST(SpawnApart, HasAGroupOrASessionOfItsOwn) {
  // Fields 1, 5 and 6: the process, its group and session.
  const std::string look = "cut -d' ' -f1,5,6 /proc/$$/stat";
  pid_t process = 0;
  pid_t group = 0;
  pid_t session = 0;
  ASSERT_EQ(std::sscanf(output_of(look).c_str(), "%d %d %d", &process, &group, &session), 3);
  EXPECT_EQ(group, process);
  EXPECT_EQ(session, ::getsid(0));
  ASSERT_EQ(std::sscanf(output_of(look, true).c_str(), "%d %d %d", &process, &group, &session), 3);
  EXPECT_EQ(session, process);
}

TEST(SpawnApart, AProgramThatIsMissingIsAnError) {
  std::string name = "no-such-program-of-deepfreeze";
  std::array<char*, 1> words = {name.data()};
  pid_t child = 0;
  EXPECT_EQ(spawn_apart({.words = words}, child), ENOENT);
}

}  // namespace
}  // namespace deepfreeze

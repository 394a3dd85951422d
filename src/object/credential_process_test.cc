#include "object/credential_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "base/clock.h"
#include "base/polling.h"
#include "object/credential_answer.h"
#include "support/scoped_dir.h"

namespace deepfreeze {
namespace {

std::optional<std::vector<std::string>> words_of(std::string_view command) {
  const auto split = split_command(command);
  if (!split) return std::nullopt;
  std::vector<std::string> words;
  for (const Secret& word : *split) words.push_back(word.text());
  return words;
}

using Words = std::vector<std::string>;

class CredentialProcess : public testing::Test {
 protected:
  // A program that does this.
  std::string program(std::string_view script) {
    const auto path = folder_.path() / "a program";
    std::ofstream(path) << "#!/bin/sh\n" << script << '\n';
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return "\"" + path.string() + "\"";
  }

  // The number that the program has written to the file `pid`.
  [[nodiscard]] pid_t written_pid() const {
    pid_t pid = 0;
    for (Polling polling{std::chrono::seconds(20)}; pid == 0 && polling.again();) {
      std::ifstream(folder_.path() / "pid") >> pid;
    }
    return pid;
  }

  // Nobody may have waited for it yet.
  static bool has_ended(pid_t pid) {
    std::string state;
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    file >> state >> state >> state;
    return state.empty() || state == "Z";
  }

  ScopedDir folder_;
};

TEST_F(CredentialProcess, CommandsAreSplitAsAShellSplitsWords) {
  EXPECT_EQ(words_of("a b"), (Words{"a", "b"}));
  EXPECT_EQ(words_of("  a \t b  "), (Words{"a", "b"}));
  EXPECT_EQ(words_of("\"/p with/space\" \"x\"'y z'\"\""), (Words{"/p with/space", "xy z"}));
  EXPECT_EQ(words_of("a '' \"\""), (Words{"a", "", ""}));
  EXPECT_EQ(words_of(R"(a\ b \"c 'd\' "e\"f\g\\")"), (Words{"a b", "\"c", "d\\", "e\"f\\g\\"}));
  EXPECT_EQ(words_of("a $HOME `x` $(y) ; | & > ~ *"),
            (Words{"a", "$HOME", "`x`", "$(y)", ";", "|", "&", ">", "~", "*"}));
  EXPECT_EQ(words_of(""), Words{});
  EXPECT_EQ(words_of("a 'b"), std::nullopt);
  EXPECT_EQ(words_of("a \"b"), std::nullopt);
  EXPECT_EQ(words_of("a\\"), std::nullopt);
}

TEST_F(CredentialProcess, ItsOutputIsReturned) {
  EXPECT_EQ(run_credential_process("printf '%s|' 'a b' $HOME").value(), "a b|$HOME|");
  EXPECT_EQ(run_credential_process("true").value(), "");
}

TEST_F(CredentialProcess, ItHasNothingToReadAndItsErrorsAreNotSeen) {
  testing::internal::CaptureStderr();
  const auto output = run_credential_process(program("cat; echo planted >&2; echo end"));
  EXPECT_EQ(output.value(), "end\n");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST_F(CredentialProcess, ItGetsTheEnvironmentButNoFilesOfOurs) {
  ::setenv("DF_OF_THE_TEST", "given", 1);
  const int file = ::open("/dev/null", O_RDONLY);  // without O_CLOEXEC
  EXPECT_EQ(run_credential_process("printenv DF_OF_THE_TEST").value(), "given\n");
  const std::string files = run_credential_process("ls -U /proc/self/fd").value().text();
  EXPECT_EQ(std::ranges::count(files, '\n'), 4) << files;  // the last is the directory itself
  ::close(file);
  ::unsetenv("DF_OF_THE_TEST");
}

TEST_F(CredentialProcess, ItGetsNoSignalsOfOurs) {
  sigset_t blocked;
  ::sigemptyset(&blocked);
  ::sigaddset(&blocked, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
  auto* before = ::signal(SIGPIPE, SIG_IGN);
  const auto output =
      run_credential_process("sed -n 's/^Sig\\(Blk\\|Ign\\)://p' /proc/self/status");
  ::signal(SIGPIPE, before);
  ::pthread_sigmask(SIG_UNBLOCK, &blocked, nullptr);
  std::istringstream words(output.value().text());
  std::uint64_t blocked_bits = ~0ULL;
  std::uint64_t ignored_bits = ~0ULL;
  words >> std::hex >> blocked_bits >> ignored_bits;
  EXPECT_EQ(blocked_bits, 0U);
  EXPECT_EQ(ignored_bits & (1U << (SIGPIPE - 1)), 0U);
}

TEST_F(CredentialProcess, AProgramThatFailsIsAnError) {
  const auto failed = run_credential_process(program("echo planted; echo planted >&2; exit 3"));
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code(), ErrorCode::kIo);
  EXPECT_EQ(failed.error().message(), "it ended with status 3");
  const auto killed = run_credential_process(program("echo planted; kill -9 $$"));
  ASSERT_FALSE(killed);
  EXPECT_EQ(killed.error().message(), "signal 9 ended it");
}

TEST_F(CredentialProcess, WhatIsNoProgramIsAnErrorWithoutTheCommand) {
  for (const std::string_view command : std::initializer_list<std::string_view>{
           "", "  ", "'planted", "'' planted", "/no/such/planted --password planted",
           std::string_view("true\0planted", 12)}) {
    const auto none = run_credential_process(command);
    ASSERT_FALSE(none) << command;
    EXPECT_EQ(none.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_FALSE(none.error().message().contains("planted")) << none.error().message();
  }
}

TEST_F(CredentialProcess, OutputWithoutEndIsCutAndTheProgramKilled) {
  const auto start = Monotonic::now();
  const auto output = run_credential_process("yes");
  ASSERT_FALSE(output);
  EXPECT_EQ(output.error().code(), ErrorCode::kIo);
  EXPECT_LT(seconds_since(start), 50);  // it was not the deadline
  const std::string fits = "head -c " + std::to_string(kKeysAnswerBytesMax) + " /dev/zero";
  EXPECT_EQ(run_credential_process(fits)->text().size(), kKeysAnswerBytesMax);
  const std::string is_long = "head -c " + std::to_string(kKeysAnswerBytesMax + 1) + " /dev/zero";
  EXPECT_FALSE(run_credential_process(is_long));
}

TEST_F(CredentialProcess, AfterTheDeadlineItIsKilledWithThoseThatItStarted) {
  const std::string pid = (folder_.path() / "pid").string();
  const auto output = run_credential_process(program("sleep 300 & echo $! > '" + pid + "'; wait"),
                                             std::chrono::seconds(2));
  ASSERT_FALSE(output);
  EXPECT_EQ(output.error().code(), ErrorCode::kTimeout);
  const pid_t started = written_pid();
  ASSERT_GT(started, 0);
  Polling polling{std::chrono::seconds(20)};
  while (!has_ended(started) && polling.again()) continue;
  EXPECT_TRUE(has_ended(started));
}

TEST_F(CredentialProcess, AHelperThatASuccessfulOneLeavesBehindGoesOn) {
  const auto answer = folder_.path() / "answer";
  const auto output =
      run_credential_process(program("cd '" + folder_.path().string() +
                                     "'; (while ! [ -e question ]; do sleep 0.01; done; "
                                     "echo yes > answer) >/dev/null & echo keys"));
  EXPECT_EQ(output.value(), "keys\n");
  std::ofstream(folder_.path() / "question") << "do you live?";
  Polling polling{std::chrono::seconds(20)};
  while (!std::filesystem::exists(answer) && polling.again()) continue;
  EXPECT_TRUE(std::filesystem::exists(answer));
}

TEST_F(CredentialProcess, OneThatClosesItsOutputAndStaysIsKilledToo) {
  const std::string pid = (folder_.path() / "pid").string();
  const auto output = run_credential_process(
      program("echo $$ > '" + pid + "'; exec >&-; sleep 300"), std::chrono::seconds(2));
  ASSERT_FALSE(output);
  EXPECT_EQ(output.error().code(), ErrorCode::kTimeout);
  EXPECT_EQ(::kill(written_pid(), 0), -1);  // reaped as well
}

TEST_F(CredentialProcess, AProgramWhoseParentReapsAllIsJudgedByItsOutput) {
  auto* before = ::signal(SIGCHLD, SIG_IGN);
  const auto output = run_credential_process("echo keys");
  ::signal(SIGCHLD, before);
  EXPECT_EQ(output.value(), "keys\n");
}

}  // namespace
}  // namespace deepfreeze

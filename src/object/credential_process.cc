#include "object/credential_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "base/polling.h"
#include "base/scope_exit.h"
#include "base/spawn_apart.h"
#include "base/try.h"
#include "base/unique_fd.h"
#include "object/credential_answer.h"

namespace deepfreeze {
namespace {

using std::chrono::milliseconds;

std::unexpected<Error> failed_call(std::string_view call, int error) {
  return fail(ErrorCode::kIo, fmt::format("{}: {}", call, std::strerror(error)), error);
}

// Its standard output goes to `into`; it is the first of a group of its own.
int spawn_with_output(const std::vector<Secret>& words, int into, pid_t& child) {
  std::vector<char*> arguments;
  for (const Secret& word : words) arguments.push_back(const_cast<char*>(word.text().c_str()));
  return spawn_apart({.words = arguments, .output = into}, child);
}

// The bytes that come until the end of the file.
Result<Secret> read_output(int from, Monotonic::time_point deadline) {
  std::string bytes(kKeysAnswerBytesMax + 1, '\0');
  const ScopeExit forget([&] { wipe(bytes); });
  std::size_t filled = 0;
  while (filled < bytes.size()) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - Monotonic::now()).count();
    pollfd wait{.fd = from, .events = POLLIN, .revents = 0};
    const int ready = ::poll(&wait, 1, static_cast<int>(std::max<milliseconds::rep>(left, 0)));
    if (ready < 0 && errno == EINTR) continue;
    if (ready < 0) return failed_call("poll", errno);
    if (ready == 0) return fail(ErrorCode::kTimeout, "it has not ended in time");
    const ssize_t count = ::read(from, bytes.data() + filled, bytes.size() - filled);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return failed_call("read", errno);
    if (count == 0) return Secret(std::string_view(bytes).substr(0, filled));
    filled += static_cast<std::size_t>(count);
  }
  return fail(ErrorCode::kIo, fmt::format("it printed more than {} bytes", kKeysAnswerBytesMax));
}

Status await_end(pid_t child, Monotonic::time_point deadline, bool& has_ended) {
  const auto left = std::chrono::ceil<milliseconds>(deadline - Monotonic::now());
  Polling polling(std::max(left, milliseconds(0)));
  int status = 0;  // stays if the program reaps all of its children: then the output decides
  do {
    const pid_t ended = ::waitpid(child, &status, WNOHANG);
    has_ended = ended == child || (ended < 0 && errno == ECHILD);
  } while (!has_ended && polling.again());
  if (!has_ended) return fail(ErrorCode::kTimeout, "it has not ended in time");
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  return fail(ErrorCode::kIo, WIFEXITED(status)
                                  ? fmt::format("it ended with status {}", WEXITSTATUS(status))
                                  : fmt::format("signal {} ended it", WTERMSIG(status)));
}

}  // namespace

Result<Secret> run_credential_process(std::string_view command, milliseconds deadline) {
  const auto end = Monotonic::now() + deadline;
  const auto words = split_command(command);
  if (!words || words->empty() || command.contains('\0')) {
    return fail(ErrorCode::kInvalidArgument, "it is not a command");
  }
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) return failed_call("pipe2", errno);
  const UniqueFd from(ends[0]);
  UniqueFd into(ends[1]);
  pid_t child = -1;
  if (const int error = spawn_with_output(*words, into.get(), child); error != 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("it can't be started: {}", std::strerror(error)), error);
  }
  bool has_ended = false;
  const ScopeExit stop([&] {
    if (has_ended) return;  // its number may be another's by now
    ::kill(-child, SIGKILL);
    while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) continue;
  });
  into = UniqueFd();  // or there would be no end of the file
  DF_TRY(Secret output, read_output(from.get(), end));
  DF_TRY_VOID(await_end(child, end, has_ended));
  return output;
}

std::optional<std::vector<Secret>> split_command(std::string_view command) {
  std::vector<Secret> words;
  std::string word;
  const ScopeExit forget([&] { wipe(word); });
  word.reserve(command.size());  // it never grows, which would leave a copy behind
  bool is_word = false;
  char quote = '\0';
  for (std::size_t i = 0; i < command.size(); ++i) {
    const char c = command[i];
    const bool is_blank = c == ' ' || c == '\t' || c == '\r' || c == '\n';
    if (quote == '\0' && is_blank) {
      if (is_word) words.emplace_back(std::string_view(word));
      word.clear();
      is_word = false;
    } else if (quote == '\0' && (c == '"' || c == '\'')) {
      quote = c;
      is_word = true;
    } else if (c == quote && quote != '\0') {
      quote = '\0';
    } else if (c == '\\' && quote != '\'') {
      if (i + 1 == command.size()) return std::nullopt;
      // Within double quotes a backslash keeps only itself and a quote.
      if (quote == '"' && command[i + 1] != '"' && command[i + 1] != '\\') word.push_back(c);
      word.push_back(command[++i]);
      is_word = true;
    } else {
      word.push_back(c);
      is_word = true;
    }
  }
  if (quote != '\0') return std::nullopt;
  if (is_word) words.emplace_back(std::string_view(word));
  return words;
}

}  // namespace deepfreeze

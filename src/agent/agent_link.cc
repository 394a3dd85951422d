#include "agent/agent_link.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "agent/agent.h"
#include "base/log.h"
#include "base/scope_exit.h"
#include "base/try.h"
#include "ipc/private_directory.h"

namespace deepfreeze {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kAnswerMax{5000};
constexpr milliseconds kSettleMax = std::chrono::minutes(10);
constexpr milliseconds kSettleQuiet{1000};  // then a note says what is waited for
constexpr milliseconds kStartMax{10'000};
constexpr milliseconds kTryPause{30'000};
constexpr int kTriesMax = 3;  // an agent may end between a connection and its answer

// Waits for a child that ends soon; one that does not is left to itself.
Status await_child(pid_t child, std::string_view what) {
  const auto deadline = Monotonic::now() + kStartMax;
  int status = 0;
  while (true) {
    const pid_t ended = ::waitpid(child, &status, WNOHANG);
    if (ended == child || (ended < 0 && errno == ECHILD)) break;  // the program may wait for all
    if (Monotonic::now() >= deadline) {
      return fail(ErrorCode::kTimeout,
                  fmt::format("{}: it is not ready after {} s", what, kStartMax.count() / 1000));
    }
    std::this_thread::sleep_for(milliseconds(1));
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  return fail(ErrorCode::kUnsupported, fmt::format("{}: it ended with status {}", what, status));
}

// Nothing of the training goes along: neither its files, nor its terminal, nor its signals.
int spawn_detached(std::vector<std::string> words, pid_t& child) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawnattr_init(&attributes);
  const ScopeExit give_back([&] {
    ::posix_spawn_file_actions_destroy(&files);
    ::posix_spawnattr_destroy(&attributes);
  });
  for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    ::posix_spawn_file_actions_addopen(&files, standard, "/dev/null", O_RDWR, 0);
  }
  ::posix_spawn_file_actions_addclosefrom_np(&files, STDERR_FILENO + 1);
  sigset_t none;
  sigset_t all;
  ::sigemptyset(&none);
  ::sigfillset(&all);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setsigdefault(&attributes, &all);
  ::posix_spawnattr_setflags(&attributes,
                             POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
  return ::posix_spawnp(&child, arguments.front(), &files, &attributes, arguments.data(), environ);
}

}  // namespace

std::unique_ptr<AgentLink> AgentLink::open(AgentLinkSettings settings) {
  auto handover = Handover::make();
  if (!handover) {
    log_warning(handover.error().message());
    return nullptr;
  }
  auto link = std::make_unique<AgentLink>(std::move(settings), *std::move(handover));
  link->try_to_connect(true);
  return link;
}

void AgentLink::use_arena(int fd) {
  UniqueFd copy(fd < 0 ? -1 : ::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  const std::lock_guard lock(mutex_);
  arena_ = std::move(copy);
  is_arena_sent_ = !arena_.valid();
}

void AgentLink::keep_up() {
  if (socket_ && socket_->has_lost_peer()) socket_.reset();
  if (!socket_ && Monotonic::now() >= next_try_) try_to_connect(false);
  if (!socket_) return;
  const Status sent = send_arena();
  if (!sent) socket_.reset();
}

void AgentLink::say_bye() {
  if (socket_) std::ignore = socket_->send(encode({.kind = AgentRequest::Kind::kBye, .hello = {}}));
  socket_.reset();
}

void AgentLink::try_to_connect(bool settles) {
  const Status connected = connect(settles);
  if (connected) {
    has_warned_ = false;
    return;
  }
  socket_.reset();
  next_try_ = Monotonic::now() + kTryPause;
  if (std::exchange(has_warned_, true)) return;
  log_warning(fmt::format("no agent: a save that is not committed ends with this process. {}",
                          connected.error().message()));
}

Status AgentLink::connect(bool settles) {
  Status connected;
  for (int tries = 0; tries < kTriesMax; ++tries) {
    connected = connect_once(settles);
    if (connected || connected.error().code() != ErrorCode::kNotFound) return connected;
    if (settings_.command.empty()) return connected;
    DF_TRY_VOID(start_agent());
  }
  return connected;
}

Status AgentLink::connect_once(bool settles) {
  DF_TRY_VOID(make_private_directory(settings_.directory));
  DF_TRY(MessageSocket socket, MessageSocket::connect(settings_.directory / kAgentSocket));
  AgentRequest request = {.kind = AgentRequest::Kind::kHello, .hello = settings_.hello};
  request.hello.settles = settles;
  const std::array files = {handover_->fd()};
  DF_TRY_VOID(socket.send(encode(request), files));
  auto answer = socket.receive(settles ? kSettleQuiet : kAnswerMax);
  if (!answer && answer.error().code() == ErrorCode::kTimeout && settles) {
    log_note(fmt::format("{}: the agent finishes a save of a process that is gone",
                         settings_.hello.run));
    answer = socket.receive(kSettleMax);
  }
  if (!answer) return std::unexpected(answer.error());
  DF_TRY_VOID(decode_answer(answer->text));
  socket_ = std::move(socket);
  {
    const std::lock_guard lock(mutex_);
    is_arena_sent_ = !arena_.valid();
  }
  return {};
}

Status AgentLink::start_agent() const {
  std::vector<std::string> words = settings_.command;
  words.insert(words.end(), {"--directory", settings_.directory.string(), "--background"});
  const std::string what = fmt::format("start the agent: {}", settings_.command.front());
  pid_t child = 0;
  const int failed = spawn_detached(std::move(words), child);
  if (failed != 0) {
    return fail(ErrorCode::kUnsupported, fmt::format("{}: {}", what, std::strerror(failed)),
                failed);
  }
  return await_child(child, what);
}

Status AgentLink::send_arena() {
  UniqueFd sent;  // its end must not come under the lock
  {
    const std::lock_guard lock(mutex_);
    if (is_arena_sent_) return {};
    sent = UniqueFd(::fcntl(arena_.get(), F_DUPFD_CLOEXEC, 0));
    is_arena_sent_ = true;
  }
  const std::array files = {sent.get()};
  return socket_->send(encode({.kind = AgentRequest::Kind::kArena, .hello = {}}), files);
}

}  // namespace deepfreeze

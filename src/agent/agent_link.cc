#include "agent/agent_link.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
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
#include "base/polling.h"
#include "base/spawn_apart.h"
#include "base/try.h"
#include "ipc/private_directory.h"

namespace deepfreeze {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kAnswerMax{2000};  // an agent is never busy when it is asked
constexpr milliseconds kSettleMax = std::chrono::minutes(10);
constexpr milliseconds kSettleQuiet{1000};  // then a note tells the user
constexpr milliseconds kStartMax{10'000};
constexpr milliseconds kTryPauseMin{30'000};
constexpr milliseconds kTryPauseMax{600'000};

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
  return spawn_apart({.words = arguments, .has_session = true}, child);
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
  arena_ = UniqueFd(fd < 0 ? -1 : ::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  is_arena_sent_ = false;
  if (fd >= 0 && !arena_.valid()) {
    log_warning(fmt::format("no agent can finish a save of this process: copy a descriptor: {}",
                            std::strerror(errno)));
  }
  if (fd < 0 && socket_ && !send_arena()) socket_->close();
}

void AgentLink::lead(LeaderHandover leader, UniqueFd listener) {
  leader_ = std::move(leader);
  listener_ = std::move(listener);
  is_leader_sent_ = false;
}

void AgentLink::keep_up() {
  if (socket_ && (!socket_->is_open() || socket_->has_lost_peer())) socket_.reset();
  if (!socket_ && Monotonic::now() >= next_try_) try_to_connect(false);
  if (!socket_) return;
  const Status sent = send_rest();
  if (sent) return;
  log_warning("no agent can finish this save: " + sent.error().message());
  socket_->close();  // also for forked children, so that the agent sees it
  socket_.reset();
}

bool AgentLink::say_bye() {
  arena_ = UniqueFd();
  leader_.reset();
  listener_ = UniqueFd();
  if (!socket_ || !socket_->is_open()) return false;
  const Status said = socket_->send(encode({.kind = AgentRequest::Kind::kBye, .hello = {}}));
  const auto answer = said ? socket_->receive(kAnswerMax) : std::unexpected(said.error());
  socket_->close();
  socket_.reset();
  return answer && decode_answer(answer->text);
}

void AgentLink::try_to_connect(bool settles) {
  const Status connected = connect(settles);
  if (connected) {
    has_warned_ = false;
    try_pause_ = milliseconds(0);
    return;
  }
  socket_.reset();
  // An agent that does not answer costs each try some seconds, in which the next save waits.
  try_pause_ = std::clamp(2 * try_pause_, kTryPauseMin, kTryPauseMax);
  next_try_ = Monotonic::now() + try_pause_;
  if (std::exchange(has_warned_, true)) return;
  log_warning(fmt::format("no agent: a save that is not committed ends with this process. {}",
                          connected.error().message()));
}

// An agent that is about to end has no socket any more, and its lock for a moment still.
Status AgentLink::connect(bool settles) {
  Polling polling(kStartMax);
  while (true) {
    const Status connected = connect_once(settles);
    if (connected || connected.error().code() != ErrorCode::kNotFound) return connected;
    if (settings_.command.empty() || !polling.again()) return connected;
    DF_TRY_VOID(start_agent());
  }
}

Status AgentLink::connect_once(bool settles) {
  DF_TRY_VOID(make_private_directory(settings_.directory));
  DF_TRY(MessageSocket socket, MessageSocket::connect(settings_.directory / kAgentSocket));
  AgentRequest request = {.kind = AgentRequest::Kind::kHello, .hello = settings_.hello};
  request.hello.settles = settles;
  const std::array files = {handover_->fd()};
  DF_TRY_VOID(socket.send(encode(request), files));
  DF_TRY(const SocketMessage answer, socket.receive(kAnswerMax));
  const Status taken = decode_answer(answer.text);
  if (!taken) return std::unexpected(taken.error().within("the agent refuses"));
  if (settles) DF_TRY_VOID(await_settled(socket));
  socket_ = std::move(socket);
  is_arena_sent_ = !arena_.valid();
  is_leader_sent_ = !leader_;
  return {};
}

Status AgentLink::await_settled(const MessageSocket& socket) const {
  auto settled = socket.receive(kSettleQuiet);
  if (!settled && settled.error().code() == ErrorCode::kTimeout) {
    log_note(fmt::format("{}: the agent finishes a save of a process that is gone",
                         settings_.hello.run));
    settled = socket.receive(kSettleMax);
  }
  if (!settled) return std::unexpected(settled.error());
  return decode_answer(settled->text);
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

Status AgentLink::send_rest() {
  if (!is_arena_sent_) DF_TRY_VOID(send_arena());
  if (!is_leader_sent_) DF_TRY_VOID(send_leader());
  return {};
}

Status AgentLink::send_leader() {
  const std::array files = {leader_->secret(), leader_->facts(), listener_.get()};
  const auto sent = std::span(files).first(listener_.valid() ? 3 : 2);
  DF_TRY_VOID(socket_->send(encode({.kind = AgentRequest::Kind::kLeader, .hello = {}}), sent));
  is_leader_sent_ = true;
  return {};
}

Status AgentLink::send_arena() {
  const std::array files = {arena_.get()};
  const auto sent = std::span(files).first(arena_.valid() ? 1 : 0);
  DF_TRY_VOID(socket_->send(encode({.kind = AgentRequest::Kind::kArena, .hello = {}}), sent));
  is_arena_sent_ = true;
  return {};
}

}  // namespace deepfreeze

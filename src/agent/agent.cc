#include "agent/agent.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "base/log.h"
#include "base/try.h"
#include "deepfreeze/version.h"
#include "ipc/private_directory.h"

namespace deepfreeze {
namespace {

constexpr std::size_t kDoneShown = 16;  // all fit into one message
constexpr std::size_t kErrorBytesShown = 500;

bool can_be_read(int fd) {
  pollfd state = {.fd = fd, .events = POLLIN, .revents = 0};
  return fd >= 0 && ::poll(&state, 1, 0) > 0 && state.revents != 0;
}

// Two names of one directory are one run.
std::string real_name(const std::string& run) {
  std::error_code failed;
  const std::filesystem::path real = std::filesystem::weakly_canonical(run, failed);
  return failed ? run : real.string();
}

bool are_one_file(const UniqueFd& one, const UniqueFd& other) {
  struct stat first = {};
  struct stat second = {};
  return ::fstat(one.get(), &first) == 0 && ::fstat(other.get(), &second) == 0 &&
         first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

// A trainer with these tiers needs nobody else to flush to those.
bool are_covered(std::span<const Tier> tiers, std::span<const Tier> by) {
  return std::ranges::all_of(tiers, [&](const Tier& tier) {
    return std::ranges::find(by, tier.path, &Tier::path) != by.end();
  });
}

std::string version_text() {
  return fmt::format("{}.{}.{}", DEEPFREEZE_VERSION_MAJOR, DEEPFREEZE_VERSION_MINOR,
                     DEEPFREEZE_VERSION_PATCH);
}

}  // namespace

struct AgentServer::Client {
  MessageSocket socket;
  UniqueFd process;      // invalid: it was gone before we could look
  bool is_heard = true;  // until its socket has ended
  bool has_said_bye = false;
  bool has_left = false;  // its process, or its program, is gone
  bool waits = false;     // for its run to be settled
  std::optional<AgentHello> hello;
  bool asks_for_end = false;  // it is told when the agent ends
  UniqueFd handover;
  UniqueFd arena;
  std::optional<LeaderHandover> leader;
  UniqueFd listener;  // of rank 0, if it leads a node

  // Its threads have ended, so nothing writes to its memory.
  [[nodiscard]] bool is_gone() const { return !process.valid() || can_be_read(process.get()); }
};

Result<std::unique_ptr<AgentServer>> AgentServer::open(AgentServerSettings settings) {
  DF_TRY_VOID(make_private_directory(settings.directory));
  auto lock = lock_file(settings.directory / kAgentLock);
  if (!lock && lock.error().code() == ErrorCode::kExists) {
    return fail(ErrorCode::kExists,
                settings.directory.string() + ": another agent is at work there");
  }
  if (!lock) return std::unexpected(lock.error());
  DF_TRY(MessageSocket socket, MessageSocket::listen(settings.directory / kAgentSocket));
  DF_TRY(WakeUp wake, WakeUp::make());
  return std::make_unique<AgentServer>(Parts{.settings = std::move(settings),
                                             .lock = *std::move(lock),
                                             .socket = std::move(socket),
                                             .wake = std::move(wake)});
}

AgentServer::AgentServer(Parts parts)
    : settings_(std::move(parts.settings)),
      lock_(std::move(parts.lock)),
      wake_(std::move(parts.wake)),
      socket_(std::move(parts.socket)) {}

AgentServer::~AgentServer() = default;

Status AgentServer::run(int end_fd) {
  while (!is_over()) take_turn(end_fd);
  socket_.reset();  // a trainer that comes now starts another agent
  remove_name(settings_.directory / kAgentSocket);
  const Status all_done = check_all_done();
  for (const auto& client : clients_) {
    if (client->asks_for_end) std::ignore = client->socket.send(encode_answer(all_done));
  }
  return all_done;
}

Status AgentServer::check_all_done() const {
  for (const auto& successor : successors_) {
    if (successor->has_flushed()) continue;
    return fail(ErrorCode::kTimeout,
                fmt::format("the agent ended before {} was on all of its tiers; the next program "
                            "that opens it goes on, or deepfreeze flush",
                            successor->run()));
  }
  const auto failed = std::ranges::find_if_not(done_, &std::string::empty, &AgentClient::error);
  if (failed == done_.end()) return {};
  return fail(ErrorCode::kIncomplete, fmt::format("{}: {}", failed->run, failed->error));
}

bool AgentServer::is_over() const {
  const bool has_trainers =
      std::ranges::any_of(clients_, [](const auto& client) { return client->hello.has_value(); });
  const auto now = Monotonic::now();
  if (end_at_) {
    const bool is_late = now >= *end_at_;
    const bool all_settled = std::ranges::all_of(
        successors_, [](const auto& successor) { return successor->has_settled(); });
    return all_settled && (is_late || (!has_trainers && successors_.empty()));
  }
  return settings_.idle_max && clients_.empty() && successors_.empty() &&
         now - busy_at_ >= *settings_.idle_max;
}

// Until the next moment at which something may be over without any event.
int AgentServer::poll_pause() const {
  constexpr std::chrono::milliseconds kPauseMax{1000};
  auto pause = kPauseMax;
  const auto until = [](Monotonic::time_point then) {
    return std::max(std::chrono::ceil<std::chrono::milliseconds>(then - Monotonic::now()),
                    std::chrono::milliseconds(0));
  };
  if (end_at_) pause = std::min(pause, until(*end_at_));
  if (settings_.idle_max) pause = std::min(pause, until(busy_at_ + *settings_.idle_max));
  return static_cast<int>(std::max(pause, std::chrono::milliseconds(1)).count());
}

void AgentServer::take_turn(int end_fd) {
  std::vector<pollfd> waited = {{.fd = wake_.fd(), .events = POLLIN, .revents = 0}};
  const auto add = [&](int fd) { waited.push_back({.fd = fd, .events = POLLIN, .revents = 0}); };
  if (!end_at_) add(end_fd);
  add(socket_->fd());
  for (const auto& client : clients_) {
    if (client->is_heard) add(client->socket.fd());
    if (client->process.valid()) add(client->process.get());
  }
  ::poll(waited.data(), waited.size(), poll_pause());
  wake_.clear();
  if (!end_at_ && can_be_read(end_fd)) drain(settings_.end_max);
  accept_all();
  for (std::size_t i = 0; i < clients_.size(); ++i) {
    const bool is_gone = clients_[i]->is_gone();  // first: then its last words are there
    listen_to(*clients_[i]);
    clients_[i]->has_left = clients_[i]->has_left || is_gone;
  }
  succeed_gone();
  drop_ended();
  answer_waiting();
  if (!clients_.empty() || !successors_.empty()) busy_at_ = Monotonic::now();
}

void AgentServer::accept_all() {
  while (auto socket = socket_->accept()) {
    auto process = socket->open_peer();
    // Without a look at its process it can't be served: it goes on without an agent.
    if (!process && process.error().code() != ErrorCode::kNotFound) continue;
    auto client = std::make_unique<Client>(Client{.socket = *std::move(socket), .process = {}});
    if (process) client->process = *std::move(process);
    clients_.push_back(std::move(client));
  }
}

void AgentServer::listen_to(Client& client) {
  while (client.is_heard) {
    auto message = client.socket.receive(std::chrono::milliseconds(0));
    if (message) {
      take(client, *std::move(message));
    } else if (message.error().code() == ErrorCode::kTimeout) {
      return;
    } else {
      client.is_heard = false;
    }
  }
}

void AgentServer::take(Client& client, SocketMessage message) {
  auto request = decode_request(message.text);
  if (!request) {
    std::ignore = client.socket.send(encode_answer(std::unexpected(request.error())));
    return;
  }
  switch (request->kind) {
    case AgentRequest::Kind::kHello:
      return take_hello(client, std::move(request->hello), message);
    case AgentRequest::Kind::kArena:
      client.arena = message.files.empty() ? UniqueFd() : std::move(message.files.front());
      return;
    case AgentRequest::Kind::kLeader:
      return take_leader(client, message);
    case AgentRequest::Kind::kBye:
      client.has_said_bye = true;
      std::ignore = client.socket.send(encode_answer({}));
      return;
    case AgentRequest::Kind::kStatus:
      std::ignore = client.socket.send(encode(status()));
      return;
    case AgentRequest::Kind::kDrain:
      client.asks_for_end = true;
      return drain(request->deadline);
  }
}

void AgentServer::take_hello(Client& client, AgentHello hello, SocketMessage& message) {
  if (message.files.empty()) {
    std::ignore = client.socket.send(encode_answer(
        fail(ErrorCode::kInvalidArgument, "the memory of the handover did not arrive")));
    return;
  }
  client.handover = std::move(message.files.front());
  hello.run = real_name(hello.run);
  for (const auto& other : clients_) {
    if (other.get() != &client) look_for_successor(*other, client, hello.run);
  }
  if (hello.commits) {  // its own flusher goes on
    for (const auto& successor : successors_) {
      if (successor->run() == hello.run && are_covered(successor->tiers(), hello.tiers)) {
        successor->end_flush();
      }
    }
  }
  client.waits = hello.settles;
  client.hello = std::move(hello);
  std::ignore = client.socket.send(encode_answer({}));
}

// At once, so that the key stays locked in memory when the trainer is gone.
void AgentServer::take_leader(Client& client, SocketMessage& message) {
  client.leader.reset();
  client.listener = UniqueFd();
  if (message.files.size() < 2) return;
  auto taken = LeaderHandover::take(std::move(message.files[0]), std::move(message.files[1]));
  if (!taken) {
    log_warning(
        fmt::format("process {}: its save can be sealed, but not committed with other "
                    "nodes: {}",
                    client.socket.peer(), taken.error().message()));
    return;
  }
  client.leader = *std::move(taken);
  if (message.files.size() > 2) client.listener = std::move(message.files[2]);
}

// A process that says hello again has lost its connection, and has the same handover; or it has
// become another program by exec(), and left a save like one that was killed.
void AgentServer::look_for_successor(Client& other, const Client& client, const std::string& run) {
  // Processes of other PID namespaces are all 0 here: whether they are one can't be told.
  const pid_t process = client.socket.peer();
  if (process == 0 || other.socket.peer() != process || !other.hello || other.hello->run != run)
    return;
  if (are_one_file(other.handover, client.handover)) {
    other.hello.reset();
    other.is_heard = false;
  } else if (!other.is_heard) {
    other.has_left = true;
  }
}

// It goes on to listen: a trainer that comes now must wait for saves to be finished, as any other.
void AgentServer::drain(std::chrono::milliseconds deadline) {
  end_at_ = Monotonic::now() + deadline;
}

void AgentServer::succeed_gone() {
  for (const auto& client : clients_) {
    if (client->hello && (client->has_left || client->has_said_bye)) succeed(*client);
  }
  std::erase_if(clients_, [](const auto& client) {
    return client->has_left || client->has_said_bye || (!client->is_heard && !client->hello);
  });
}

// A living trainer of the run that flushes to these tiers by itself.
bool AgentServer::has_flusher(const AgentHello& gone) const {
  return std::ranges::any_of(clients_, [&](const auto& client) {
    return client->hello && !client->has_said_bye && !client->has_left &&
           client->hello->run == gone.run && client->hello->commits &&
           are_covered(gone.tiers, client->hello->tiers);
  });
}

void AgentServer::succeed(Client& client) {
  LeftWork work = {.run = client.hello->run,
                   .process = client.socket.peer(),
                   .tiers = {},
                   .is_on_nodes = client.hello->is_on_nodes,
                   .is_rank0 = client.hello->is_rank0};
  if (client.hello->commits && !has_flusher(*client.hello)) work.tiers = client.hello->tiers;
  if (!client.has_said_bye) {
    work.handover = std::move(client.handover);
    work.arena = std::move(client.arena);
    work.leader = std::move(client.leader);
    work.listener = std::move(client.listener);
  }
  if (!work.handover.valid() && work.tiers.empty()) return;
  try {
    successors_.push_back(std::make_unique<Successor>(std::move(work), [this] { wake_.notify(); }));
  } catch (const std::exception& cause) {
    log_warning(fmt::format("{}: nobody goes on with it: {}", client.hello->run, cause.what()));
  }
}

void AgentServer::drop_ended() {
  std::erase_if(successors_, [&](const auto& successor) {
    if (!successor->has_ended()) return false;
    AgentClient report = successor->report();
    report.error.resize(std::min(report.error.size(), kErrorBytesShown));
    // A run that has gone well since is no failure any more.
    if (report.error.empty()) {
      std::erase_if(done_, [&](const AgentClient& one) { return one.run == report.run; });
    }
    done_.push_back(std::move(report));
    return true;
  });
  if (done_.size() > kDoneShown) done_.erase(done_.begin());
}

bool AgentServer::is_settled(const std::string& run) const {
  return std::ranges::all_of(successors_, [&](const auto& successor) {
    return successor->run() != run || successor->has_settled();
  });
}

void AgentServer::answer_waiting() {
  for (const auto& client : clients_) {
    if (!client->waits) continue;
    for (const auto& successor : successors_) {
      if (successor->run() == client->hello->run) successor->hurry();
    }
    if (!is_settled(client->hello->run)) continue;
    client->waits = false;
    std::ignore = client->socket.send(encode_answer({}));
  }
}

AgentStatus AgentServer::status() const {
  AgentStatus status = {.version = version_text(), .process = ::getpid(), .clients = {}};
  for (const auto& client : clients_) {
    if (!client->hello) continue;
    status.clients.push_back({.run = client->hello->run,
                              .process = client->socket.peer(),
                              .state = client->waits ? "waiting for its run" : "training",
                              .outcome = {},
                              .error = {}});
  }
  for (const auto& successor : successors_) status.clients.push_back(successor->report());
  status.clients.insert(status.clients.end(), done_.begin(), done_.end());
  return status;
}

}  // namespace deepfreeze

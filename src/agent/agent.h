// The agent of one user on one machine. It holds the memory that trainers have given it; for a
// trainer that is gone it starts a Successor. One thread runs it.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "agent/agent_message.h"
#include "agent/successor.h"
#include "base/clock.h"
#include "ipc/message_socket.h"
#include "ipc/wake_up.h"

namespace deepfreeze {

inline constexpr const char* kAgentSocket = "agent.sock";
inline constexpr const char* kAgentLock = "agent.lock";

struct AgentServerSettings {
  std::filesystem::path directory;  // of this user alone; made if it is not there
  // Ends after so long without trainers and without work; absent: never.
  std::optional<std::chrono::milliseconds> idle_max;
  // After a signal to end: flushes end then, finished or not. Saves are always finished.
  std::chrono::milliseconds end_max{std::chrono::seconds(20)};
};

class AgentServer {
 public:
  // kExists: another agent is at work there. kUnsupported: the directory is not this user's alone.
  [[nodiscard]] static Result<std::unique_ptr<AgentServer>> open(AgentServerSettings settings);
  struct Parts {
    AgentServerSettings settings;
    UniqueFd lock;
    MessageSocket socket;
    WakeUp wake;
  };
  explicit AgentServer(Parts parts);
  AgentServer(const AgentServer&) = delete;
  AgentServer& operator=(const AgentServer&) = delete;
  ~AgentServer();

  // Serves until it has nothing to do for idle_max, or is told to end: by a message, or once
  // `end_fd` can be read; then it waits for the trainers that are connected, up to a deadline, and
  // finishes all saves. kTimeout: the deadline came before all was flushed. kIncomplete: a save or
  // a flush has failed.
  [[nodiscard]] Status run(int end_fd);

 private:
  struct Client;

  [[nodiscard]] bool is_over() const;
  [[nodiscard]] Status check_all_done() const;
  [[nodiscard]] int poll_pause() const;
  void take_turn(int end_fd);
  void accept_all();
  void listen_to(Client& client);
  void take(Client& client, SocketMessage message);
  void take_hello(Client& client, AgentHello hello, SocketMessage& message);
  static void take_leader(Client& client, SocketMessage& message);
  static void look_for_successor(Client& other, const Client& client, const std::string& run);
  void drain(std::chrono::milliseconds deadline);
  void succeed_gone();
  [[nodiscard]] bool has_flusher(const AgentHello& gone) const;
  void succeed(Client& client);
  void drop_ended();
  void answer_waiting();
  [[nodiscard]] bool is_settled(const std::string& run) const;
  [[nodiscard]] AgentStatus status() const;

  const AgentServerSettings settings_;
  const UniqueFd lock_;
  const WakeUp wake_;  // a successor has come further
  std::optional<MessageSocket> socket_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::vector<std::unique_ptr<Successor>> successors_;
  std::vector<AgentClient> done_;  // the last that have ended, for display
  std::optional<Monotonic::time_point> end_at_;
  Monotonic::time_point busy_at_ = Monotonic::now();  // last
};

}  // namespace deepfreeze

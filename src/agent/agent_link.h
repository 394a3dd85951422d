// A trainer's connection with the agent of its machine. Without an agent everything goes on, but a
// save ends with its process.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/agent_message.h"
#include "base/clock.h"
#include "ipc/message_socket.h"
#include "nodes/leader_handover.h"
#include "save/handover.h"

namespace deepfreeze {

struct AgentLinkSettings {
  std::filesystem::path directory;   // of the agent's socket
  std::vector<std::string> command;  // starts an agent if none is there; empty: none is started
  AgentHello hello;
};

class AgentLink {
 public:
  // Finds or starts the agent, and returns once it has finished the saves of gone trainers of the
  // run: so the newest checkpoint is there to be found. Failures are logged, and later saves try
  // again. Null if the system refuses the memory for a handover.
  [[nodiscard]] static std::unique_ptr<AgentLink> open(AgentLinkSettings settings);
  AgentLink(AgentLinkSettings settings, std::unique_ptr<Handover> handover)
      : settings_(std::move(settings)), handover_(std::move(handover)) {}

  [[nodiscard]] Handover& handover() { return *handover_; }

  // The memory of later saves, sent by the next keep_up(); -1: the one before is given back, at
  // once. While no save is under way.
  void use_arena(int fd);
  // The means to go on as the leader of this process's node, sent by the next keep_up(); a
  // listening socket of rank 0 alone. While no save is under way.
  void lead(LeaderHandover leader, UniqueFd listener);
  // For the thread that writes, before each save: connects again if the agent is another one.
  void keep_up();
  // After the last save. True if an agent goes on with those copies that tiers still wait for.
  [[nodiscard]] bool say_bye();
  [[nodiscard]] bool is_connected() const {
    return socket_ && socket_->is_open() && !socket_->has_lost_peer();
  }

 private:
  [[nodiscard]] Status connect(bool settles);
  [[nodiscard]] Status connect_once(bool settles);
  [[nodiscard]] Status await_settled(const MessageSocket& socket) const;
  [[nodiscard]] Status start_agent() const;
  void try_to_connect(bool settles);
  [[nodiscard]] Status send_arena();
  [[nodiscard]] Status send_leader();
  [[nodiscard]] Status send_rest();

  const AgentLinkSettings settings_;
  const std::unique_ptr<Handover> handover_;
  // Of one thread at a time: the caller's while no save is under way, else the writer's. The queue
  // of saves and the arena's own lock order the two.
  std::optional<MessageSocket> socket_;
  Monotonic::time_point next_try_{};
  std::chrono::milliseconds try_pause_{0};  // of the last failure
  bool has_warned_ = false;
  UniqueFd arena_;
  bool is_arena_sent_ = true;
  std::optional<LeaderHandover> leader_;
  UniqueFd listener_;
  bool is_leader_sent_ = true;
};

}  // namespace deepfreeze

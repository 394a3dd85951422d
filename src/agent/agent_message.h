// The messages between an agent and its clients, each one JSON object. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "deepfreeze/options.h"
#include "deepfreeze/result.h"

namespace deepfreeze {

inline constexpr std::uint64_t kAgentProtocol = 4;

// The first message of a trainer. With it comes the file of its Handover.
struct AgentHello {
  std::string run;      // absolute path of its directory
  bool commits = true;  // rank 0, or the leader of a node: its successor flushes
  // The job's nodes have directories of their own (decision 0026), and this is one of them.
  bool is_on_nodes = false;
  bool is_rank0 = true;  // of several nodes, its one copies between the farther tiers
  // A second answer is wanted, once all saves of gone trainers of the run are finished. The first
  // comes at once.
  bool settles = false;
  std::vector<Tier> tiers;
};

struct AgentRequest {
  enum class Kind : std::uint8_t {
    kHello,
    kArena,   // with the file of the arena, or without one; in place of the one before
    kLeader,  // of a node: with the two files of its LeaderHandover; and rank 0's listening socket
    kBye,     // the trainer ends in good order; answered once its tiers are the agent's
    kStatus,  // answered by AgentStatus
    kDrain,   // the agent ends once all is done, or at the deadline
  };
  Kind kind = Kind::kHello;
  AgentHello hello;
  std::chrono::milliseconds deadline{0};  // of kDrain
};

// The agent's work for one trainer.
struct AgentClient {
  std::string run;
  std::int64_t process = 0;
  // "training", "finishing a save", "flushing", "answering other nodes", "waiting for its run",
  // "done".
  std::string state;
  std::string outcome;  // of the save that was left; empty if there is none yet
  std::string error;    // empty: none
};

struct AgentStatus {
  std::string version;
  std::int64_t process = 0;
  std::vector<AgentClient> clients;  // first those that are connected, then those that are gone
};

[[nodiscard]] std::string encode(const AgentRequest& request);
// kCorrupt, or kUnsupported for a trainer of another version. kDrain is understood from all.
[[nodiscard]] Result<AgentRequest> decode_request(std::string_view text);

// An answer, which all versions understand: empty text for "done", else the reason why not.
[[nodiscard]] std::string encode_answer(const Status& done);
// The reason as an error, kUnsupported.
[[nodiscard]] Status decode_answer(std::string_view text);

[[nodiscard]] std::string encode(const AgentStatus& status);
[[nodiscard]] Result<AgentStatus> decode_status(std::string_view text);

}  // namespace deepfreeze

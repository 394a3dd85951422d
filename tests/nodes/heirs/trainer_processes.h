// The processes of one job whose nodes are directories, each with an agent of its own. A rank saves
// step after step as it is told, tells how far each save has come, and lives until it is killed.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "deepfreeze/deepfreeze.h"
#include "nodes/heirs/pipe_ranks.h"

namespace deepfreeze::heirs_test {

enum class Said : std::uint8_t { kOpened, kStopped, kCaptured, kLocal, kFailed, kWrong };
struct Word {
  Said said = Said::kOpened;
  std::uint64_t step = 0;  // of kOpened: the one that the job goes on from
};

struct RankPlan {
  std::filesystem::path run;    // of its node, as the next
  std::filesystem::path agent;  // empty: none
  std::string stops_at;         // a fail point, in the save that the next numbers
  std::uint64_t stops_in = 1;
  std::vector<Tier> tiers = {};
};

class TrainerProcesses {
 public:
  // Forks a process for each rank, which opens the run and verifies the newest checkpoint.
  explicit TrainerProcesses(const std::vector<RankPlan>& plans);
  TrainerProcesses(const TrainerProcesses&) = delete;
  TrainerProcesses& operator=(const TrainerProcesses&) = delete;
  ~TrainerProcesses();

  // All ranks save so many steps.
  void save(std::size_t steps = 1);
  // Waits for the next word of a rank; nothing once it is dead.
  [[nodiscard]] std::optional<Word> next(std::uint32_t rank);
  void kill(std::uint32_t rank);
  void kill_all();

 private:
  struct Rank {
    pid_t process = 0;
    UniqueFd socket;
  };
  std::vector<Rank> ranks_;
};

}  // namespace deepfreeze::heirs_test

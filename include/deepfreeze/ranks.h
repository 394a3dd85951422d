// The processes of one job that save and restore together.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "deepfreeze/result.h"

namespace deepfreeze {

// Lets ranks talk to each other over any transport that the job has: torch.distributed, MPI
// (deepfreeze/mpi_ranks.h), or anything that can gather and scatter bytes.
//
// Both calls are collective: every rank makes the same ones in the same order. They are made within
// calls of the Checkpointer, in its caller's thread, and never behind it. If a rank has died or
// does not come, the others' calls must fail (kTimeout) in bounded time; after an error the ranks
// may be out of step, and the group is not used any more.
class RankGroup {
 public:
  RankGroup() = default;
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;
  virtual ~RankGroup() = default;

  [[nodiscard]] virtual std::uint32_t rank() const = 0;
  [[nodiscard]] virtual std::uint32_t world_size() const = 0;

  // Rank 0 gets every rank's bytes, by rank; the others get nothing.
  [[nodiscard]] virtual Result<std::vector<std::string>> gather(std::string bytes) = 0;
  // Rank 0 gives something for every rank, by rank, the others nothing. Returns the caller's own.
  [[nodiscard]] virtual Result<std::string> scatter(std::vector<std::string> bytes) = 0;
};

}  // namespace deepfreeze

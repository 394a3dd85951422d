// Who writes what: every byte of the state once, and every rank about as many. A pure function.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/holders.h"
#include "plan/share.h"

namespace deepfreeze {

// Below it a tensor is written by one rank: a cut costs an entry in two headers.
inline constexpr std::uint64_t kCutBytesMin = 1024 * 1024;

struct SharePlan {
  std::vector<std::vector<Share>> ranks;     // by rank, in the order of its table
  std::vector<std::vector<GroupId>> groups;  // by rank and tensor: who has it alike, or kNoCopies
  std::uint32_t groups_of_rank_max = 1;      // how many of them any rank is in
};

// What only one rank has stays with it. What several have is divided among them alone, so that the
// greatest load is as small as it can be but for the cuts: ranks with copies of the same boxes then
// differ by at most two of kCutBytesMin, or two rows where those are longer. So do all where one
// group's ranks are all in the other group, or none, as in data-parallel, sharded and hybrid jobs;
// groups that overlap otherwise are filled one after the other. The same ranks and tables give the
// same plan, wherever it is made. Errors: find_holders()'s.
[[nodiscard]] Result<SharePlan> plan_shares(std::span<const RankState> ranks);

}  // namespace deepfreeze

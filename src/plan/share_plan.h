// Decides which rank writes which bytes: every byte of the state once, and every rank about as
// many. A pure function.
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
  std::vector<std::vector<GroupId>> groups;  // by rank and tensor; or kNoCopies
  std::uint32_t groups_of_rank_max = 1;      // how many of them any rank is in
};

// A box that only one rank has is written by that rank. A box that several have is divided among
// these alone, so that the greatest load is as small as possible apart from the cuts: the loads of
// ranks with copies of the same boxes then differ by at most two of kCutBytesMin, or by two rows if
// rows are longer. This holds for all ranks if any two groups are disjoint or one contains the
// other, as in data-parallel, sharded and hybrid jobs; groups that overlap otherwise are filled one
// after the other. Equal ranks and tables give an equal plan, on whichever rank it is made. Errors:
// find_holders()'s.
[[nodiscard]] Result<SharePlan> plan_shares(std::span<const RankState> ranks);

}  // namespace deepfreeze

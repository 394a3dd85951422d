#include "shares.h"

#include "base/try.h"
#include "plan/share_plan.h"

namespace deepfreeze::simulation {

Result<std::uint64_t> state_bytes(const std::vector<TensorSpec>& tensors) {
  std::uint64_t total = 0;
  for (const TensorSpec& spec : tensors) {
    DF_TRY(const std::uint64_t bytes, spec_bytes(spec));
    if (__builtin_add_overflow(total, bytes, &total)) {
      return fail(ErrorCode::kInvalidArgument, "workload.tensors: more than 2^64 bytes");
    }
  }
  return total;
}

Result<std::vector<std::uint64_t>> share_bytes(const Scenario& scenario) {
  const std::vector<TensorSpec>& tensors = scenario.workload.tensors;
  std::vector<RankState> ranks;
  for (std::uint64_t rank = 0; rank < scenario.ranks(); ++rank) {
    const auto node = static_cast<std::uint32_t>(rank / scenario.machine.ranks_per_node);
    ranks.push_back({.tensors = &tensors, .node = node});
  }
  DF_TRY(const SharePlan plan, plan_shares(ranks));
  std::vector<std::uint64_t> bytes(ranks.size());
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    for (const Share& share : plan.ranks[rank]) {
      bytes[rank] += share.rows * rows_of(tensors[share.tensor]).bytes;
    }
  }
  return bytes;
}

}  // namespace deepfreeze::simulation

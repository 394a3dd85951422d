// This process among the ranks of its job. Alone, it decides by itself, and there is nobody to ask.
// For the thread of the Checkpointer's caller.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agreement/save_agreement.h"
#include "format/records.h"
#include "ranks/ranks_in_step.h"
#include "save/save_plan.h"

namespace deepfreeze {

class JobRanks {
 public:
  // A null group or a group of one means that this process is alone. kInvalidArgument if the
  // group's own numbers are impossible.
  [[nodiscard]] static Result<JobRanks> join(std::shared_ptr<RankGroup> group);

  [[nodiscard]] bool is_alone() const { return !group_; }
  [[nodiscard]] bool commits() const { return !group_ || group_->rank() == 0; }
  [[nodiscard]] RankGroup* group() const { return group_.get(); }  // null: alone

  // All below are collective; see save_agreement.h, ranks/collective.h.
  [[nodiscard]] Result<SaveVerdict> agree_on_save(const SaveVote& own,
                                                  const MakeIdentity& make_identity);
  // Decides which rank writes and which compares which parts of the tensors that the planner has
  // accepted. `crcs` has one for each, or the reason why this rank has none, which is then every
  // rank's error.
  [[nodiscard]] Status share_out(Result<std::vector<std::uint32_t>> crcs, std::uint32_t audit_saves,
                                 SavePlanner& planner);
  [[nodiscard]] Status agree(std::string_view subject, const Status& own);
  [[nodiscard]] Result<bool> as_rank0(bool own);
  // Rank 0's points. The other ranks' are ignored.
  [[nodiscard]] Result<std::vector<Point>> points_of_rank0(Result<std::vector<Point>> own);

 private:
  explicit JobRanks(std::shared_ptr<RanksInStep> group) : group_(std::move(group)) {}

  std::shared_ptr<RanksInStep> group_;  // of all copies
};

}  // namespace deepfreeze

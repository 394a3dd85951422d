// The agreement of the ranks of a job before each save, in their callers' threads: whether to save,
// under which identity, and which rank writes which bytes. Stateless but for the group.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "deepfreeze/ranks.h"
#include "format/shard_header.h"
#include "plan/audit.h"
#include "plan/share.h"

namespace deepfreeze {

// The vote of one rank.
struct SaveVote {
  std::string run_id;
  std::uint64_t step = 0;
  bool is_save = true;     // else a prewarm: no identity is needed
  bool has_shares = true;  // of these tensors, from an earlier save
  bool is_busy = false;    // and is not to wait: the save is left out
  Status ready;            // else it can't save, and why
};

// The answer to all votes.
struct SaveVerdict {
  bool skip = false;
  bool claim = false;       // there is no identity yet: all claim the run, and then vote again
  bool share_anew = false;  // the next step of all is share_out()
  Identity identity;        // with the caller's own rank; of a save only
};

// Of the next save; nothing if the nodes have to claim the run first.
using MakeIdentity = std::function<Result<std::optional<Identity>>()>;

// Collective. Rank 0 calls `make_identity` if all ranks are ready. An error is every rank's: that
// of the first rank that is not ready; kMismatch if they save different steps, or into different
// runs; or make_identity's.
[[nodiscard]] Result<SaveVerdict> agree_on_save(RankGroup& ranks, const SaveVote& own,
                                                const MakeIdentity& make_identity);

// The tensors that a rank has to share out.
struct RankTensors {
  std::string node;  // the same for ranks of one machine
  std::vector<TensorSpec> specs;
  std::vector<std::uint32_t> crcs;  // CRC-32C of the bytes of each
  std::uint32_t audit_saves = 0;    // AuditPlan::saves; rank 0's counts
  Status ready;                     // else it could not read them, and why
};

// The duties that a rank is given.
struct RankDuties {
  std::vector<Share> shares;  // to write
  AuditPlan audit;            // to compare
};

// Collective: the caller's share of all ranks' tensors (plan/share_plan.h). Errors are every
// rank's: that of the first rank that is not ready; kMismatch if tables contradict each other, or
// if two ranks have different bytes under one key and box: only one of them could be kept.
[[nodiscard]] Result<RankDuties> share_out(RankGroup& ranks, const RankTensors& own);

}  // namespace deepfreeze

// What the ranks of a job agree on before each save, in their callers' threads: whether, under
// which identity, and who writes what. Stateless but for the group.
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

// What one rank comes with.
struct SaveVote {
  std::string run_id;
  std::uint64_t step = 0;
  bool is_save = true;     // else a prewarm: no identity is needed
  bool has_shares = true;  // of these tensors, from an earlier save
  bool is_busy = false;    // and is not to wait: the save is left out
  Status ready;            // else it can't save, and why
};

// What all go away with.
struct SaveVerdict {
  bool skip = false;
  bool share_anew = false;  // the next step of all is share_out()
  Identity identity;        // with the caller's own rank; of a save only
};

// Collective. `make_identity` is called by rank 0, where all are ready. An error is every rank's:
// the first rank's that is not ready; kMismatch where they save different steps, or into
// different runs; or make_identity's.
[[nodiscard]] Result<SaveVerdict> agree_on_save(
    RankGroup& ranks, const SaveVote& own, const std::function<Result<Identity>()>& make_identity);

// What a rank has to share out.
struct RankTensors {
  std::string node;  // the same for ranks of one machine
  std::vector<TensorSpec> specs;
  std::vector<std::uint32_t> crcs;  // CRC-32C of the bytes of each
  std::uint32_t audit_saves = 0;    // AuditPlan::saves; rank 0's counts
  Status ready;                     // else it could not read them, and why
};

// What it is told.
struct RankDuties {
  std::vector<Share> shares;  // to write
  AuditPlan audit;            // to compare
};

// Collective: the caller's part of what all have (plan/share_plan.h). Errors are every rank's:
// the first rank's that is not ready; kMismatch where tables contradict each other, or where
// two ranks have different bytes under one key and box: only one of them could be kept.
[[nodiscard]] Result<RankDuties> share_out(RankGroup& ranks, const RankTensors& own);

}  // namespace deepfreeze

// A MODEL of C1 to C3 of decision 0026, the claim of a job over several nodes: it stands here until
// the product has them (row 4 of the decision), and is as small as these tests allow.
#pragma once

#include <vector>

#include "format/records.h"
#include "nodes/crash/machines.h"

namespace deepfreeze::nodes_test {

struct ClaimingNode {
  std::uint64_t digits = 0;
  Vfs* vfs = nullptr;
};

// The first node is rank 0's: its directory decides the attempts of the claim.
[[nodiscard]] Result<GenerationRecord> claim_for_all(const std::vector<ClaimingNode>& nodes,
                                                     const std::string& run_id, Mutant mutant,
                                                     Fate& fate);

// Attempts in a directory that have no outcome there.
[[nodiscard]] Result<std::vector<AttemptName>> undecided_in(Vfs& vfs);

}  // namespace deepfreeze::nodes_test

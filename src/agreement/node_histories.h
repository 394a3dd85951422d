// The records of a run that the nodes of a job have, and those that each of them lacks
// (docs/decisions/0026, steps O2 and O3). Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "agreement/node_map.h"
#include "format/records.h"
#include "save/run_writer.h"

namespace deepfreeze {

// The records in one node's directory. A claim that does not verify is left out: its number is
// taken there, and nobody knows by whom.
struct NodeHistory {
  struct Claim {
    GenerationRecord record;
    bool is_used = false;  // an attempt of that generation is here, committed or in doubt
  };
  std::optional<RunRecord> run;           // empty: the directory holds none
  std::vector<Claim> claims;              // by generation
  std::vector<std::uint64_t> unreadable;  // numbers of claims
  std::uint64_t save_index = 0;           // of the newest save of any line
};

// The records that a node has to place in its directory.
struct HistoryPatch {
  std::optional<RunRecord> run;
  std::vector<GenerationRecord> claims;  // newest first
  // The claims of other places that win against one here of the same number. They take its place
  // once a higher claim has fenced its process.
  std::vector<GenerationRecord> winners;
};

struct MergedHistory {
  std::vector<HistoryPatch> patches;  // by node
  RunWriter::Highest highest;         // of all nodes
};

// `histories` and `nodes` are of the same order. `made` is the run if no node has one. kMismatch:
// nodes hold different runs; or two processes have claimed one generation and both have used it.
[[nodiscard]] Result<MergedHistory> merge_histories(const std::vector<JobNode>& nodes,
                                                    const std::vector<NodeHistory>& histories,
                                                    const std::optional<RunRecord>& made);

[[nodiscard]] bool any_run(const std::vector<NodeHistory>& histories);

}  // namespace deepfreeze

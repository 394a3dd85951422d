#include "agreement/node_histories.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/try.h"

namespace deepfreeze {
namespace {

Result<RunRecord> run_of(const std::vector<JobNode>& nodes,
                         const std::vector<NodeHistory>& histories,
                         const std::optional<RunRecord>& made) {
  std::size_t first = 0;
  while (first < histories.size() && !histories[first].run) ++first;
  if (first == histories.size()) return *made;
  const RunRecord& run = *histories[first].run;
  for (std::size_t i = first + 1; i < histories.size(); ++i) {
    if (!histories[i].run || histories[i].run->run_id == run.run_id) continue;
    return fail(ErrorCode::kMismatch,
                fmt::format("{} holds run {}, and {} holds run {}: a job needs near directories of "
                            "one run, or empty ones",
                            place_of(nodes[first]), run.run_id, place_of(nodes[i]),
                            histories[i].run->run_id));
  }
  return run;
}

// The record of one number that holds, and the node that has it.
struct StandingRecord {
  const NodeHistory::Claim* claim = nullptr;
  std::size_t node = 0;
};
using Records = std::map<std::uint64_t, StandingRecord, std::greater<>>;

// The record of a node that has used it holds; if none has, that of the first node.
Result<Records> records_of(const std::vector<JobNode>& nodes,
                           const std::vector<NodeHistory>& histories) {
  Records records;
  for (std::size_t node = 0; node < histories.size(); ++node) {
    for (const NodeHistory::Claim& claim : histories[node].claims) {
      const StandingRecord own{&claim, node};
      const auto [known, is_new] = records.try_emplace(claim.record.generation, own);
      if (is_new) continue;
      StandingRecord& standing = known->second;
      const bool is_same = standing.claim->record == claim.record;
      if (!is_same && standing.claim->is_used && claim.is_used) {
        return fail(ErrorCode::kMismatch,
                    fmt::format("two processes have saved as generation {}, one on {} and one on "
                                "{}. Open the run on one of the two with new directories on the "
                                "other nodes",
                                claim.record.generation, place_of(nodes[standing.node]),
                                place_of(nodes[node])));
      }
      if (claim.is_used) standing = own;
    }
  }
  return records;
}

HistoryPatch patch_for(const NodeHistory& history, const RunRecord& run, const Records& records) {
  HistoryPatch patch;
  if (!history.run) patch.run = run;
  for (const auto& [generation, standing] : records) {
    const auto own = std::ranges::find(history.claims, generation,
                                       [](const auto& claim) { return claim.record.generation; });
    if (own == history.claims.end()) {
      const bool is_taken =
          std::ranges::find(history.unreadable, generation) != history.unreadable.end();
      if (!is_taken) patch.claims.push_back(standing.claim->record);
    } else if (own->record != standing.claim->record) {
      patch.winners.push_back(standing.claim->record);
    }
  }
  return patch;
}

}  // namespace

bool any_run(const std::vector<NodeHistory>& histories) {
  return std::ranges::any_of(histories,
                             [](const auto& history) { return history.run.has_value(); });
}

Result<MergedHistory> merge_histories(const std::vector<JobNode>& nodes,
                                      const std::vector<NodeHistory>& histories,
                                      const std::optional<RunRecord>& made) {
  DF_TRY(const RunRecord run, run_of(nodes, histories, made));
  DF_TRY(const Records records, records_of(nodes, histories));
  MergedHistory merged;
  RunWriter::Highest& highest = merged.highest;
  if (!records.empty()) highest.generation = records.begin()->first;
  for (const NodeHistory& history : histories) {
    highest.save_index = std::max(highest.save_index, history.save_index);
    for (const std::uint64_t generation : history.unreadable) {
      highest.generation = std::max(highest.generation, generation);
    }
    merged.patches.push_back(patch_for(history, run, records));
  }
  return merged;
}

}  // namespace deepfreeze

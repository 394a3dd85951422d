#include "agreement/claim_rounds.h"

#include <fmt/format.h>

#include "agreement/doubt_rounds.h"
#include "agreement/history_rounds.h"
#include "base/log.h"
#include "base/random_id.h"
#include "base/try.h"
#include "manifest/claims.h"
#include "manifest/run_directory.h"
#include "ranks/collective.h"

namespace deepfreeze {
namespace {

// C2, first half: the claim of rank 0 in this node's directory.
Status place_claim(Vfs& vfs, const GenerationRecord& claim) {
  return place_durably(vfs, generation_file_name(claim.generation), encode_generation(claim));
}

// The process of a claim that lost is fenced by now.
Status take_place(Vfs& vfs, const GenerationRecord& winner) {
  const std::string name = generation_file_name(winner.generation);
  const std::string kept = void_claim_name(winner.generation, random_id());
  DF_TRY_VOID(vfs.rename_no_replace(name, kept));
  log_warning(
      fmt::format("{}: generation {} was claimed by two processes; that of another node "
                  "holds, and this node's record is {} now",
                  vfs.path_of(""), winner.generation, kept));
  return place_durably(vfs, name, encode_generation(winner));
}

// C2, second half: the attempts that this directory decides. kFenced if it has a higher claim.
Status decide_own(Vfs& vfs, const GenerationRecord& claim,
                  const std::vector<GenerationRecord>& winners) {
  DF_TRY(const RunListing listing, read_run(vfs));
  DF_TRY(const std::size_t aborted, abort_undecided(vfs, listing, claim.generation));
  if (aborted > 0) {
    log_warning(fmt::format("{}: {} unfinished attempts of an earlier process were aborted",
                            vfs.path_of(""), aborted));
  }
  for (const GenerationRecord& winner : winners) {
    // Its process may have used it since the nodes compared their claims.
    if (is_used(listing, winner.generation)) {
      return fail(ErrorCode::kMismatch, fmt::format("{}: two processes have saved as generation {}",
                                                    vfs.path_of(""), winner.generation));
    }
    DF_TRY_VOID(take_place(vfs, winner));
  }
  return {};
}

Result<std::string> claim_here(RunWriter& writer, std::uint64_t step,
                               const RunWriter::Highest& others) {
  DF_TRY(const GenerationRecord claimed, writer.begin_claim(step, others));
  return encode_generation(claimed);
}

}  // namespace

Result<GenerationRecord> claim_on_nodes(RankGroup& ranks, const NodeMap& nodes, Vfs& vfs,
                                        RunWriter& writer, std::uint64_t step) {
  const bool is_first = ranks.rank() == 0;
  DF_TRY(const SharedHistory history, share_history(ranks, nodes, vfs, writer.record().parent));
  Result<std::string> own;
  if (is_first) own = claim_here(writer, step, history.highest);
  DF_TRY(const std::string text, share_rank0s(ranks, "claim", std::move(own)));
  DF_TRY(const GenerationRecord claim, decode_generation(text));
  DF_TRY_VOID(agree(&ranks, "place claim", nodes.leads() ? place_claim(vfs, claim) : Status{}));
  DF_TRY_VOID(agree(&ranks, "decide attempts",
                    nodes.leads() ? decide_own(vfs, claim, history.winners) : Status{}));
  DF_TRY_VOID(settle_doubts_of_job(ranks, nodes, vfs));
  DF_TRY_VOID(agree(&ranks, "claimed", is_first ? writer.end_claim(claim) : Status{}));
  return claim;
}

}  // namespace deepfreeze

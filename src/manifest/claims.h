// Generations decide which process may write a run. See the commit protocol, "Claiming".
#pragma once

#include <cstdint>
#include <optional>

#include "base/random_id.h"
#include "format/shard_header.h"
#include "manifest/run_directory.h"

namespace deepfreeze {

// The members of a claim beside the point that it goes on from.
struct ClaimDetails {
  Keep keep = {};                          // recorded for readers that have no rules of their own
  std::uint64_t claimant = random_id();    // tells the claims of one process from those of others
  std::optional<std::uint64_t> node = {};  // GenerationRecord::node
  std::uint64_t above = 0;                 // the highest number that other places have
};

// Claims highest + 1 durably (tmp, sync, rename without replacing, directory sync); a lost race
// for a number tries the next, kClaimTriesMax times.
[[nodiscard]] Result<GenerationRecord> claim_generation(Vfs& vfs, const std::string& run_id,
                                                        std::optional<Point> resumed_from,
                                                        const ClaimDetails& details = {});
inline constexpr int kClaimTriesMax = 100;

// The present state of a claim of this process.
struct ClaimView {
  bool stands = false;  // unchanged, and the run's own file is there
  bool is_fenced = false;
};
[[nodiscard]] Result<ClaimView> look_at_claim(Vfs& vfs, const GenerationRecord& own);

// kFenced if a claim above `generation` exists. The message names the claimant's generation.
[[nodiscard]] Status check_not_fenced(Vfs& vfs, std::uint64_t generation);

// Gives every undecided attempt of an older generation the outcome "aborted" (an attempt without a
// readable header counts as older), except those in doubt (in_doubt.h). Returns how many. Only for
// the claimant of `generation`, before its own first attempt; kFenced if there is a newer claim.
[[nodiscard]] Result<std::size_t> abort_undecided(Vfs& vfs, const RunListing& listing,
                                                  std::uint64_t generation);

// The identity of an undecided attempt, if a claim above its generation exists and it can therefore
// never be committed. Empty if the attempt may be in flight, if another directory decides it
// (in_doubt.h), or if no header of it can be read.
[[nodiscard]] Result<std::optional<Identity>> fenced_identity(Vfs& vfs, const std::string& run_id,
                                                              const AttemptName& name);

// Gives such an attempt the outcome "aborted", which its claimant should have done, and returns the
// recorded outcome. kBusy if the attempt is not such a one.
[[nodiscard]] Result<Manifest> abort_fenced(Vfs& vfs, const std::string& run_id,
                                            const AttemptName& name);

}  // namespace deepfreeze

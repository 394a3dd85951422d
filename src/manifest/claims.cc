#include "manifest/claims.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/clock.h"
#include "base/random_id.h"
#include "base/try.h"
#include "manifest/commit.h"
#include "manifest/history.h"
#include "manifest/in_doubt.h"
#include "manifest/record_file.h"
#include "manifest/sealed_parts.h"

namespace deepfreeze {
namespace {

constexpr RecordFailPoints kClaimFailPoints = {"claim.written", "claim.renamed", "claim.synced"};

std::uint64_t highest_claim(const std::vector<DirEntry>& entries) {
  std::uint64_t highest = 0;
  for (const DirEntry& entry : entries) {
    highest = std::max(highest, parse_generation_file_name(entry.name).value_or(0));
  }
  return highest;
}

Result<std::uint64_t> highest_claim(Vfs& vfs) {
  DF_TRY(const std::vector<DirEntry> entries, vfs.list(""));
  return highest_claim(entries);
}

Status place_claim(Vfs& vfs, const GenerationRecord& record) {
  return place_record(vfs,
                      {.directory = "",
                       .name = generation_file_name(record.generation),
                       .text = encode_generation(record)},
                      kClaimFailPoints);
}

// The identity under which "aborted" is recorded: from the attempt's header, else as much as its
// name tells.
Manifest aborted_manifest(const std::string& run_id, const AttemptName& name,
                          const std::optional<Identity>& identity) {
  Manifest aborted;
  aborted.outcome = Outcome::kAborted;
  aborted.run_id = run_id;
  aborted.point = {
      .generation = 0, .step = name.step, .save_index = 0, .attempt_id = name.attempt_id};
  if (!identity) return aborted;
  aborted.point.generation = identity->generation;
  aborted.point.save_index = identity->save_index;
  aborted.world_size = identity->part.world_size;
  return aborted;
}

// True if this call made it aborted.
Result<bool> abort_one(Vfs& vfs, const RunListing& listing, const AttemptName& name,
                       std::uint64_t generation) {
  const std::optional<Identity> identity = find_identity(vfs, name);
  if (identity && identity->generation >= generation) return false;
  // After the caller's claim: a node that has sealed nothing by now will see the claim before it
  // reports its files.
  DF_TRY(const auto doubt, find_doubt(vfs, {listing.claims, listing.node}, name));
  if (doubt) return false;
  const auto outcome = abort_attempt(vfs, aborted_manifest(listing.run.run_id, name, identity));
  if (outcome) return outcome->outcome == Outcome::kAborted;
  if (outcome.error().code() == ErrorCode::kNotFound) return false;  // deleted meanwhile
  return std::unexpected(outcome.error());
}

}  // namespace

Result<GenerationRecord> claim_generation(Vfs& vfs, const std::string& run_id,
                                          std::optional<Point> resumed_from,
                                          const ClaimDetails& details) {
  DF_TRY(const RunListing listing, read_run(vfs));
  GenerationRecord record{.run_id = run_id,
                          .generation = std::max(highest_generation(listing), details.above),
                          .claimant = details.claimant,
                          .resumed_from = resumed_from,
                          .wall_micros = wall_micros(),
                          .keep = details.keep,
                          .node = details.node};
  // A claim is above the point that it goes on from, which may come from another place.
  if (resumed_from) record.generation = std::max(record.generation, resumed_from->generation);
  for (int tries = 0; tries < kClaimTriesMax; ++tries) {
    if (record.generation == std::numeric_limits<std::uint64_t>::max()) break;
    ++record.generation;
    const Status placed = place_claim(vfs, record);
    if (!placed && placed.error().code() == ErrorCode::kExists) continue;  // a lost race
    if (!placed) return std::unexpected(placed.error().within("claim a generation"));
    DF_TRY_VOID(settle_record(vfs, "", kClaimFailPoints));
    return record;
  }
  return fail(ErrorCode::kBusy, fmt::format("claim a generation of run {}: all numbers to {} are "
                                            "taken",
                                            run_id, record.generation));
}

Result<ClaimView> look_at_claim(Vfs& vfs, const GenerationRecord& own) {
  DF_TRY(const std::vector<DirEntry> entries, vfs.list(""));
  ClaimView view{.stands = false, .is_fenced = highest_claim(entries) > own.generation};
  if (!has_name(entries, kRunFile)) return view;
  const auto text = read_file(vfs, generation_file_name(own.generation), kRecordBytesMax);
  view.stands = text && *text == encode_generation(own);
  return view;
}

Status check_not_fenced(Vfs& vfs, std::uint64_t generation) {
  DF_TRY(const std::uint64_t highest, highest_claim(vfs));
  if (highest <= generation) return {};
  return fail(ErrorCode::kFenced,
              fmt::format("generation {} of {} is fenced: generation {} has been claimed",
                          generation, vfs.path_of(""), highest));
}

Result<std::size_t> abort_undecided(Vfs& vfs, const RunListing& listing, std::uint64_t generation) {
  // The listing is older than this check, so no attempt in it belongs to a newer claimant.
  DF_TRY_VOID(check_not_fenced(vfs, generation));
  std::size_t count = 0;
  for (const AttemptState& attempt : listing.attempts) {
    if (!attempt.undecided()) continue;
    DF_TRY(const bool aborted, abort_one(vfs, listing, attempt.name, generation));
    if (aborted) ++count;
  }
  return count;
}

Result<std::optional<Identity>> fenced_identity(Vfs& vfs, const std::string& run_id,
                                                const AttemptName& name) {
  std::optional<Identity> identity = find_identity(vfs, name);
  if (!identity || identity->run_id != run_id) return std::nullopt;
  DF_TRY(const Deciders here, read_deciders(vfs));
  if (here.claims.empty() || identity->generation >= here.claims.back().generation) {
    return std::nullopt;
  }
  DF_TRY(const auto doubt, find_doubt(vfs, {here.claims, here.node}, name));
  if (doubt) return std::nullopt;
  return identity;
}

Result<Manifest> abort_fenced(Vfs& vfs, const std::string& run_id, const AttemptName& name) {
  DF_TRY(const std::optional<Identity> identity, fenced_identity(vfs, run_id, name));
  if (identity) return abort_attempt(vfs, aborted_manifest(run_id, name, identity));
  return fail(ErrorCode::kBusy, fmt::format("{} may be in flight: the next claimant decides it",
                                            vfs.path_of(attempt_dir_name(name))));
}

}  // namespace deepfreeze

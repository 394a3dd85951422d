#include "engine/run_writer.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/hex.h"
#include "base/log.h"
#include "base/random_id.h"
#include "base/try.h"
#include "manifest/claims.h"
#include "manifest/history.h"
#include "manifest/retention.h"

namespace deepfreeze {
namespace {

std::uint64_t last_save_index(const RunListing& listing) {
  std::uint64_t last = 0;
  for (const AttemptState& attempt : listing.attempts) {
    if (attempt.manifest) last = std::max(last, attempt.manifest->point.save_index);
  }
  return last;
}

void warn_of_new_line(const RunListing& listing, const std::optional<Point>& resumed_from) {
  const std::size_t committed = newest_first(listing).size();
  if (resumed_from || committed == 0) return;
  log_warning(fmt::format(
      "run {} holds {} checkpoints and none was restored: this run starts a new line beside them",
      listing.run.run_id, committed));
}

void warn_of_lost_claims(const RunListing& listing) {
  for (const Claim& claim : listing.claims) {
    if (claim.record) continue;
    log_warning(generation_file_name(claim.generation) +
                " can't be read: what older checkpoints belong to is not known, so they stay");
  }
}

}  // namespace

Result<RunWriter> RunWriter::open(Vfs& vfs, std::optional<ParentPoint> parent, Keep keep) {
  DF_TRY(RunRecord record, create_or_open_run(vfs, std::move(parent)));
  DF_TRY(const RunListing listing, read_run(vfs));
  return RunWriter(vfs, std::move(record), last_save_index(listing), std::move(keep));
}

void RunWriter::continue_from(const Point& point) {
  const bool claimed_it = claimed_ && claimed_->resumed_from == point;
  claim_due_ = !claimed_it || has_issued_;
  stands_at_ = point;
}

bool RunWriter::must_claim(std::uint64_t step) const {
  return claim_due_ || (has_issued_ && step < stands_at_->step);
}

Status RunWriter::prepare() { return claim_due_ ? claim(stands_at_) : Status{}; }

Result<Identity> RunWriter::next_identity(std::uint64_t step) {
  if (must_claim(step)) {
    DF_TRY_VOID(claim(stands_at_));
  } else {
    // Before a byte is written: a process that lost its run must not fill the disk.
    DF_TRY_VOID(check_not_fenced(*vfs_, claimed_->generation));
  }
  stands_at_ = Point{.generation = claimed_->generation,
                     .step = step,
                     .save_index = ++save_index_,
                     .attempt_id = random_id()};
  has_issued_ = true;
  Identity identity;
  identity.run_id = record_.run_id;
  identity.attempt_id = stands_at_->attempt_id;
  identity.generation = stands_at_->generation;
  identity.step = step;
  identity.save_index = stands_at_->save_index;
  return identity;
}

Status RunWriter::claim(const std::optional<Point>& resumed_from) {
  // Until all of it is done none holds: one that fails may be on the disk, and fence the last.
  claimed_.reset();
  claim_due_ = true;
  has_issued_ = false;
  DF_TRY(const RunListing before, read_run(*vfs_));
  warn_of_new_line(before, resumed_from);
  warn_of_lost_claims(before);
  DF_TRY(GenerationRecord claimed, claim_generation(*vfs_, record_.run_id, resumed_from, keep_));
  // After the claim, so that what a predecessor still commits in between is seen.
  DF_TRY(const RunListing listing, read_run(*vfs_));
  save_index_ = std::max(save_index_, last_save_index(listing));
  DF_TRY(const std::size_t aborted, abort_undecided(*vfs_, listing, claimed.generation));
  if (aborted > 0) {
    log_warning(fmt::format("{} unfinished attempts of an earlier process were aborted", aborted));
  }
  claimed_ = std::move(claimed);
  claim_due_ = false;
  remove_aborted();
  return {};
}

// What was given up would else fill the disk of a run that keeps crashing.
void RunWriter::remove_aborted() const {
  const auto collected = collect_garbage(*vfs_, Keep{}, false);
  if (!collected) log_warning("aborted attempts stay: " + collected.error().message());
}

}  // namespace deepfreeze

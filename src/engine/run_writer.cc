#include "engine/run_writer.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/hex.h"
#include "base/log.h"
#include "base/random_id.h"
#include "base/try.h"
#include "manifest/claims.h"
#include "manifest/history.h"

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

}  // namespace

Result<RunWriter> RunWriter::open(Vfs& vfs, std::optional<ParentPoint> parent) {
  DF_TRY(RunRecord record, create_or_open_run(vfs, std::move(parent)));
  DF_TRY(const RunListing listing, read_run(vfs));
  return RunWriter(vfs, std::move(record), last_save_index(listing));
}

Result<RunListing> RunWriter::decide() {
  DF_TRY(RunListing listing, read_run(*vfs_));
  if (std::ranges::none_of(listing.attempts, &AttemptState::undecided)) return listing;
  const auto committed = newest_first(listing);
  if (!resumed_from_ && !committed.empty()) resumed_from_ = committed.front().point;
  const Status decided = claim_and_abort(listing);
  if (decided) return read_run(*vfs_);
  log_warning("undecided attempts are left as they are: " + decided.error().message());
  return listing;
}

Result<Identity> RunWriter::next_identity(std::uint64_t step) {
  if (!claimed_ || claimed_->resumed_from != resumed_from_) DF_TRY_VOID(claim());
  Identity identity;
  identity.run_id = record_.run_id;
  identity.attempt_id = random_id();
  identity.generation = claimed_->generation;
  identity.step = step;
  identity.save_index = ++save_index_;
  return identity;
}

Status RunWriter::claim() {
  DF_TRY(const RunListing listing, read_run(*vfs_));
  warn_of_new_line(listing, resumed_from_);
  return claim_and_abort(listing);
}

Status RunWriter::claim_and_abort(const RunListing& listing) {
  DF_TRY(claimed_, claim_generation(*vfs_, record_.run_id, resumed_from_));
  // After the claim, so that what a predecessor still commits in between is seen.
  DF_TRY(const RunListing claimed_listing, read_run(*vfs_));
  save_index_ = std::max({save_index_, last_save_index(listing), last_save_index(claimed_listing)});
  DF_TRY(const std::size_t aborted, abort_undecided(*vfs_, claimed_listing, claimed_->generation));
  if (aborted > 0) {
    log_warning(fmt::format("{} unfinished attempts of an earlier process were aborted", aborted));
  }
  return {};
}

}  // namespace deepfreeze

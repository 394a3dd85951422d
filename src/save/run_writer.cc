#include "save/run_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <thread>

#include "base/hex.h"
#include "base/host_name.h"
#include "base/log.h"
#include "base/random_id.h"
#include "base/try.h"
#include "manifest/history.h"
#include "manifest/node_marker.h"
#include "manifest/retention.h"
#include "manifest/run_file.h"
#include "save/restored_points.h"

namespace deepfreeze {
namespace {

constexpr std::chrono::seconds kFollowWaitMax{5};
constexpr std::chrono::milliseconds kFollowPause{20};

std::uint64_t last_save_index(const RunListing& listing) {
  std::uint64_t last = 0;
  for (const AttemptState& attempt : listing.attempts) {
    if (attempt.manifest) last = std::max(last, attempt.manifest->point.save_index);
  }
  return last;
}

void warn_of_new_line(const Vfs& vfs, const RunListing& listing,
                      const std::optional<Point>& resumed_from) {
  const std::size_t committed = newest_first(listing).size();
  if (resumed_from || committed == 0) return;
  const std::string path = vfs.path_of("");
  log_warning(fmt::format(
      "{} holds {} checkpoints, and none was restored: this process starts a new line beside them. "
      "They stay, whatever `keep` says: call restore() before the first save to go on from them, "
      "or delete them by `deepfreeze gc {} --keep-last N`",
      path, committed, path));
}

void warn_of_lost_claims(const RunListing& listing) {
  for (const Claim& claim : listing.claims) {
    if (claim.record) continue;
    log_warning(generation_file_name(claim.generation) +
                " can't be read: the line of older checkpoints is not known, so they stay");
  }
}

bool is_committed_in(const RunListing& listing, const Point& point) {
  return std::ranges::any_of(listing.attempts, [&](const AttemptState& attempt) {
    return attempt.committed() && attempt.manifest->point == point;
  });
}

// The newest checkpoint of the current line that is not newer than `point`.
std::optional<Point> nearest_point(const RunListing& listing, const Point& point) {
  if (is_committed_in(listing, point)) return point;
  const CurrentLine line(listing);
  for (const Manifest& manifest : newest_first(listing)) {
    // The state at `point` has never been at a newer one.
    if (!older(point, manifest.point) && line.contains(manifest.point)) return manifest.point;
  }
  return std::nullopt;
}

}  // namespace

Result<RunWriter> RunWriter::open(Vfs& vfs, std::optional<ParentPoint> parent, Keep keep) {
  DF_TRY(RunRecord record, create_or_open_run(vfs, std::move(parent)));
  DF_TRY(const RunListing listing, read_run(vfs));
  return RunWriter(vfs, std::move(record), last_save_index(listing), std::move(keep));
}

Result<RunWriter> RunWriter::open_to_read(Vfs& vfs) {
  DF_TRY(RunListing listing, read_run(vfs));
  const std::uint64_t save_index = last_save_index(listing);
  return RunWriter(vfs, std::move(listing.run), save_index, Keep{});
}

void RunWriter::continue_from(const Point& point) {
  const bool claimed_it = claimed_ && claimed_->resumed_from == point;
  claim_due_ = !claimed_it || has_issued_;
  stands_at_ = point;
  save_index_ = std::max(save_index_, point.save_index);
  known_.reset();
  fenced_.reset();
  note_restored(record_.run_id, point);
}

bool RunWriter::must_claim(std::uint64_t step) const {
  if (claim_due_) return true;
  if (stands_at_) return has_issued_ && step < stands_at_->step;
  // A prewarm, which knew no step, took for granted that the run goes on from there.
  return claimed_->resumed_from && step < claimed_->resumed_from->step;
}

Status RunWriter::prepare(const Settle& settle) {
  if (fenced_) return std::unexpected(*fenced_);
  if (!claim_due_) return {};
  DF_TRY(const ClaimView view, look());
  if (!view.stands) return {};
  settle();
  return claim(std::numeric_limits<std::uint64_t>::max());
}

Result<Identity> RunWriter::next_identity(std::uint64_t step, const Settle& settle) {
  if (fenced_) return std::unexpected(*fenced_);
  Result<Identity> made = make_identity(step, settle);
  // Remembered: the claims that show it may be deleted, and the run must not be taken back then.
  if (!made && made.error().code() == ErrorCode::kFenced) fenced_ = made.error();
  return made;
}

Result<Identity> RunWriter::make_identity(std::uint64_t step, const Settle& settle) {
  DF_TRY(const ClaimView view, look());
  if (!view.stands) {
    settle();
    DF_TRY_VOID(open_again());
  } else if (view.is_fenced && !must_claim(step)) {
    // Before a byte is written: a process that lost its run must not fill the disk.
    DF_TRY_VOID(check_not_fenced(*vfs_, claimed_->generation));
  }
  if (must_claim(step)) {
    settle();
    DF_TRY_VOID(claim(step));
  }
  return issue(step);
}

Identity RunWriter::issue(std::uint64_t step) {
  stands_at_ = Point{.generation = claimed_->generation,
                     .step = step,
                     .save_index = ++save_index_,
                     .attempt_id = random_id()};
  has_issued_ = true;
  forget_restored(record_.run_id);
  Identity identity;
  identity.run_id = record_.run_id;
  identity.attempt_id = stands_at_->attempt_id;
  identity.generation = stands_at_->generation;
  identity.step = step;
  identity.save_index = stands_at_->save_index;
  return identity;
}

Result<std::optional<Identity>> RunWriter::identity_if_claimed(std::uint64_t step) {
  if (fenced_) return std::unexpected(*fenced_);
  auto issued = issue_if_claimed(step);
  if (!issued && issued.error().code() == ErrorCode::kFenced) fenced_ = issued.error();
  return issued;
}

Result<std::optional<Identity>> RunWriter::issue_if_claimed(std::uint64_t step) {
  DF_TRY(const ClaimView view, look());
  if (!view.stands) {
    return fail(ErrorCode::kIo, fmt::format("{} was deleted or replaced while the run was open on "
                                            "several nodes: open the run again",
                                            vfs_->path_of("")));
  }
  if (must_claim(step)) return std::nullopt;
  if (view.is_fenced) DF_TRY_VOID(check_not_fenced(*vfs_, claimed_->generation));
  return issue(step);
}

// Whether the run is still as it was when it was opened or claimed. One look at the disk per save.
Result<ClaimView> RunWriter::look() {
  if (is_elsewhere_) return ClaimView{};
  DF_TRY(const bool in_place, vfs_->is_in_place());
  if (!in_place) return ClaimView{};
  if (claimed_) return look_at_claim(*vfs_, *claimed_);
  const auto found = read_run_file(*vfs_);
  if (found) return ClaimView{.stands = found->run_id == record_.run_id};
  return ClaimView{.stands = found.error().code() != ErrorCode::kNotFound};
}

Status RunWriter::find_directory() {
  DF_TRY(const bool in_place, vfs_->is_in_place());
  if (in_place) return {};
  DF_TRY_VOID(vfs_->reopen());
  is_elsewhere_ = true;
  return {};
}

Status RunWriter::open_again() {
  const Status opened = vfs_->reopen();
  if (!opened && opened.error().code() != ErrorCode::kNotFound) return opened;
  is_elsewhere_ = true;  // until it is known what is there
  if (!opened) {
    DF_TRY_VOID(make_again());
  } else if (const auto listing = read_run(*vfs_)) {
    DF_TRY_VOID(go_on_in(*listing));
  } else {
    const ErrorCode cause = listing.error().code();
    const bool holds_none = cause == ErrorCode::kNotFound || cause == ErrorCode::kCorrupt;
    DF_TRY_VOID(holds_none ? make_again() : std::unexpected(listing.error()));
  }
  if (node_) {  // claims name the digits of the directory that is there now
    DF_TRY(const NodeRecord marker, find_or_make_node(*vfs_, host_name()));
    node_ = marker.node;
  }
  claimed_.reset();
  claim_due_ = true;
  has_issued_ = false;
  is_elsewhere_ = false;
  return {};
}

// Makes a new run rather than one with the old id: the old run may have been moved away and be
// continued elsewhere, and the two must never be taken for one.
Status RunWriter::make_again() {
  DF_TRY_VOID(vfs_->make_root());
  DF_TRY_VOID(adopt_());
  DF_TRY(RunRecord made, create_or_open_run(*vfs_, record_.parent));
  if (made.run_id == record_.run_id) {
    log_warning(
        fmt::format("{} was deleted or moved while it was open: its records come from another tier",
                    vfs_->path_of("")));
    return {};  // it goes on from its last point
  }
  log_warning(
      fmt::format("{} was deleted or moved while it was open, with all checkpoints: it is "
                  "made again as run {}, which begins with the next save",
                  vfs_->path_of(""), made.run_id));
  record_ = std::move(made);
  stands_at_.reset();
  known_ = 0;  // a claim that exists already is a faster process's
  return {};
}

Status RunWriter::go_on_in(const RunListing& listing) {
  const std::string path = vfs_->path_of("");
  if (listing.run.run_id != record_.run_id) {
    // This process is part of the new run's history only after a restore from it.
    if (!stands_at_ || !is_committed_in(listing, *stands_at_)) {
      return fail(ErrorCode::kFenced,
                  fmt::format("{} holds another run now, {} in place of {}: restore from it to go "
                              "on there, or open another directory",
                              path, listing.run.run_id, record_.run_id));
    }
    record_ = listing.run;
    return {};
  }
  if (listing.run_rebuilt) {
    DF_TRY(record_, create_or_open_run(*vfs_, record_.parent));  // the listing has warned
  } else {
    log_warning(
        fmt::format("{} was replaced, or lost records, while it was open: run {} is "
                    "claimed anew, and goes on with what is there",
                    path, record_.run_id));
  }
  if (stands_at_) stands_at_ = nearest_point(listing, *stands_at_);
  return {};
}

Status RunWriter::follow(const std::string& run_id, const Settle& settle) {
  DF_TRY(const bool in_place, vfs_->is_in_place());
  if (in_place && run_id == record_.run_id) return {};
  settle();
  // A network file system may show the new directory here later than to rank 0.
  const auto deadline = std::chrono::steady_clock::now() + kFollowWaitMax;
  for (;;) {
    Status followed = follow_once(run_id);
    if (followed || std::chrono::steady_clock::now() > deadline) return followed;
    std::this_thread::sleep_for(kFollowPause);
  }
}

Status RunWriter::follow_once(const std::string& run_id) {
  DF_TRY(const bool in_place, vfs_->is_in_place());
  if (!in_place) DF_TRY_VOID(vfs_->reopen());
  DF_TRY(RunRecord found, read_run_file(*vfs_));
  if (found.run_id == run_id) {
    record_ = std::move(found);
    return {};
  }
  return fail(ErrorCode::kIo, fmt::format("{} holds run {} here, and {} for rank 0",
                                          vfs_->path_of(""), found.run_id, run_id));
}

std::optional<Point> RunWriter::start_in(const RunListing& listing, std::uint64_t step) const {
  if (stands_at_) return stands_at_;
  const auto restored = restored_point(record_.run_id);
  // A smaller step is no continuation: the program looked at a checkpoint and then began anew.
  if (!restored || step < restored->step || !is_committed_in(listing, *restored)) return {};
  return restored;
}

// A claim that fails must not make its process forget its own claim: a process that claims in
// between owns the run.
Status RunWriter::check_right(const RunListing& listing) {
  std::uint64_t highest = 0;
  for (const Claim& claim : listing.claims) {
    const bool is_own = claim.record && claim.record->claimant == claimant_;
    highest = std::max(highest, claim.generation);
    if (is_own || !known_ || claim.generation <= *known_) continue;
    return fail(ErrorCode::kFenced,
                fmt::format("generation {} of {} is fenced: generation {} has been claimed",
                            *known_, vfs_->path_of(""), claim.generation));
  }
  known_ = std::max(known_.value_or(0), highest);
  return {};
}

Status RunWriter::claim(std::uint64_t step) {
  DF_TRY(GenerationRecord claimed, begin_claim(step, {}));
  return end_claim(std::move(claimed));
}

Result<GenerationRecord> RunWriter::begin_claim(std::uint64_t step, const Highest& others) {
  // No claim holds until all steps are done: a claim that failed may be on the disk, and fence the
  // last one.
  claimed_.reset();
  claim_due_ = true;
  has_issued_ = false;
  DF_TRY(const RunListing before, read_run(*vfs_));
  DF_TRY_VOID(check_right(before));
  const std::optional<Point> resumed_from = start_in(before, step);
  warn_of_new_line(*vfs_, before, resumed_from);
  warn_of_lost_claims(before);
  const ClaimDetails details{
      .keep = keep_, .claimant = claimant_, .node = node_, .above = others.generation};
  DF_TRY(GenerationRecord claimed, claim_generation(*vfs_, record_.run_id, resumed_from, details));
  known_ = std::max(known_.value_or(0), claimed.generation);
  save_index_ = std::max(save_index_, others.save_index);
  return claimed;
}

Status RunWriter::end_claim(GenerationRecord claimed) {
  // After the claim, so that it includes commits that a predecessor still made in between.
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

void RunWriter::note_failed_claim(const Error& error) {
  if (error.code() == ErrorCode::kFenced) fenced_ = error;
}

// Otherwise aborted attempts would fill the disk of a run that keeps crashing.
void RunWriter::remove_aborted() const {
  const auto collected = collect_garbage(*vfs_, Keep{});
  if (!collected) log_warning("aborted attempts stay: " + collected.error().message());
}

}  // namespace deepfreeze

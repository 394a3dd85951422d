// The commit protocol. docs/commit_protocol.md gives the reasons; the code cites the steps.
//
//  0  Every new directory's parent is synced: make_durable_directories() for the run itself.
//  1  Make the attempt's directory, sync the run's directory.
//  2  Data to rank-….part, exact size, sync.                           (pipeline/part_writer.cc)
//  3  Header with its own CRC, sync: a header that verifies implies the data.  (the same)
//  4  Rename each .part to .safetensors, sync the attempt's directory: sealed.
//     A rank that fails writes rank-….failed, so that nobody waits for it.
//  5  Rank 0 waits for all parts and checks sizes, header CRCs, identities and keys.
//  6  Nobody has claimed a newer generation: manifest.<nonce>.tmp, sync; all files are there
//     still; rename without replacing (one that is there already is verified and adopted), sync
//     the attempt's directory: committed. If that last sync fails, the outcome is unknown.
//
// Giving up publishes the outcome "aborted" under the manifest's name by the same step, so an
// attempt has one outcome for ever. Deleting is in remove_attempt.cc, claiming in claims.cc.
#include "manifest/commit.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "base/fail_point.h"
#include "base/try.h"
#include "manifest/claims.h"
#include "manifest/record_file.h"
#include "manifest/run_directory.h"
#include "manifest/sealed_parts.h"

namespace deepfreeze {
namespace {

constexpr RecordFailPoints kCommitFailPoints = {
    "commit.manifest_written", "commit.manifest_renamed", "commit.manifest_synced"};
constexpr RecordFailPoints kAbortFailPoints = {"abort.written", "abort.renamed", "abort.synced"};

Point point_of(const Identity& identity) {
  return {.generation = identity.generation,
          .step = identity.step,
          .save_index = identity.save_index,
          .attempt_id = identity.attempt_id};
}

AttemptName name_of(const Point& point) { return {point.step, point.attempt_id}; }

Manifest outcome_of(const CommitRequest& request, Outcome outcome) {
  Manifest manifest;
  manifest.outcome = outcome;
  manifest.run_id = request.identity.run_id;
  manifest.point = point_of(request.identity);
  manifest.world_size = request.world_size;
  return manifest;
}

// Step 6, once the temporary file exists: a process that gives the attempt up from now on removes
// that file before it publishes "aborted", so the rename fails. If "aborted" came and went before
// the first listing, files are missing in the second. One listing would not do: it does not show a
// single moment.
Status check_not_given_up(Vfs& vfs, const Point& point, std::span<const ManifestFile> files) {
  if (files.empty()) return {};  // it is aborted, and vouches for no file
  const std::string directory = attempt_dir_name(name_of(point));
  DF_TRY(std::vector<DirEntry> entries, vfs.list(directory));
  if (has_name(entries, kManifestFile)) return fail(ErrorCode::kExists, "it has an outcome");
  DF_TRY(entries, vfs.list(directory));
  std::ranges::sort(entries, {}, &DirEntry::name);
  for (const ManifestFile& file : files) {
    if (std::ranges::binary_search(entries, file.name, {}, &DirEntry::name)) continue;
    DF_TRY_VOID(check_not_fenced(vfs, point.generation));
    return fail(ErrorCode::kCancelled,
                fmt::format("{} has been given up: {} is gone", directory, file.name));
  }
  return {};
}

// A record of an outcome, and the files in this directory that it vouches for.
struct NewOutcome {
  const Manifest& manifest;
  std::string_view text;
  std::span<const ManifestFile> here;
};

// Step 6 up to the rename; returns the record that now has the name. Not durable yet.
Result<Manifest> place_outcome(Vfs& vfs, const NewOutcome& outcome,
                               const RecordFailPoints& points) {
  const AttemptName name = name_of(outcome.manifest.point);
  const std::string directory = attempt_dir_name(name);
  const Status placed = place_record(
      vfs, {.directory = directory, .name = kManifestFile, .text = outcome.text}, points,
      [&] { return check_not_given_up(vfs, outcome.manifest.point, outcome.here); });
  if (placed) return outcome.manifest;
  if (placed.error().code() != ErrorCode::kExists) return std::unexpected(placed.error());
  return read_manifest(vfs, name, outcome.manifest.run_id);
}

// Step 5 of an attempt that has all its files in this directory.
Result<CheckedParts> check_all_parts(Vfs& vfs, const CommitRequest& request) {
  DF_TRY(const std::vector<PartName> parts, wait_for_parts(vfs, request));
  return check_parts(vfs, request, parts);
}

// Step 6, up to the rename.
Result<Manifest> place_commit(Vfs& vfs, const CommitRequest& request, Result<CheckedParts> checked,
                              std::span<const ManifestFile> here) {
  if (!checked) {
    if (checked.error().code() != ErrorCode::kExists) return std::unexpected(checked.error());
    return read_manifest(vfs, name_of(point_of(request.identity)), request.identity.run_id);
  }
  DF_FAIL_POINT("commit.parts_checked");
  DF_TRY_VOID(check_not_fenced(vfs, request.identity.generation));
  const Manifest manifest = committed_manifest(request, *std::move(checked));
  return place_outcome(vfs, {.manifest = manifest, .text = encode_manifest(manifest), .here = here},
                       kCommitFailPoints);
}

// As far as we know, no manifest exists. If "aborted" cannot be written because the disk is full,
// the attempt itself fills the disk and is removed.
Result<Manifest> give_up(Vfs& vfs, const CommitRequest& request, const Error& error) {
  auto outcome = abort_attempt(vfs, outcome_of(request, Outcome::kAborted));
  if (outcome && outcome->outcome == Outcome::kCommitted) return outcome;  // it got there after all
  if (!outcome && outcome.error().code() == ErrorCode::kNoSpace) {
    std::ignore = remove_attempt(vfs, name_of(point_of(request.identity)));
  }
  return std::unexpected(error);
}

Result<Manifest> accept(Vfs& vfs, const Manifest& manifest) {
  if (manifest.outcome == Outcome::kCommitted) return manifest;
  DF_TRY_VOID(check_not_fenced(vfs, manifest.point.generation));
  return fail(ErrorCode::kCancelled,
              attempt_dir_name(name_of(manifest.point)) + " has been given up: it is aborted");
}

Result<Manifest> conclude(Vfs& vfs, const CommitRequest& request, Result<CheckedParts> checked,
                          std::span<const ManifestFile> here) {
  const auto placed = place_commit(vfs, request, std::move(checked), here);
  if (!placed) return give_up(vfs, request, placed.error());
  const std::string directory = attempt_dir_name(name_of(placed->point));
  const Status settled = settle_record(vfs, directory, kCommitFailPoints);
  if (!settled) {
    return fail(ErrorCode::kIo, "outcome unknown: " + settled.error().message(),
                settled.error().os_errno());
  }
  return accept(vfs, *placed);
}

}  // namespace

Status begin_attempt(Vfs& vfs, const AttemptName& name) {
  const std::string directory = attempt_dir_name(name);
  DF_TRY_VOID(vfs.make_dir(directory));
  DF_FAIL_POINT("commit.directory_made");
  const Status synced = vfs.sync_dir("");
  if (!synced) std::ignore = vfs.remove_dir(directory);  // still empty
  DF_TRY_VOID(synced);
  DF_FAIL_POINT("commit.directory_synced");
  return {};
}

Status seal_parts(Vfs& vfs, const AttemptName& attempt, std::span<const PartName> parts) {
  const std::string directory = attempt_dir_name(attempt);
  for (const PartName& part : parts) {
    DF_TRY_VOID(vfs.rename_no_replace(join_name(directory, part_file_name(part)),
                                      join_name(directory, sealed_file_name(part))));
    DF_FAIL_POINT("commit.sealed");
  }
  DF_TRY_VOID(vfs.sync_dir(directory));
  DF_FAIL_POINT("commit.seal_synced");
  return {};
}

void report_failed_part(Vfs& vfs, const AttemptName& attempt, const PartName& part,
                        const Error& error) {
  const std::string path = join_name(attempt_dir_name(attempt), failed_file_name(part));
  std::ignore = write_new_file(vfs, path, error.message().substr(0, kFailureTextBytesMax));
}

Manifest committed_manifest(const CommitRequest& request, CheckedParts checked) {
  Manifest manifest = outcome_of(request, Outcome::kCommitted);
  manifest.files = std::move(checked.files);
  manifest.annotations = std::move(checked.annotations);
  manifest.non_finite = checked.non_finite;
  manifest.diverged = std::move(checked.diverged);
  return manifest;
}

Result<Manifest> conclude_attempt(Vfs& vfs, const CommitRequest& request,
                                  Result<CheckedParts> checked,
                                  std::span<const ManifestFile> here) {
  auto committed = conclude(vfs, request, std::move(checked), here);
  if (committed) return committed;
  return std::unexpected(
      committed.error().within(fmt::format("commit step {}", request.identity.step)));
}

Result<Manifest> commit_attempt(Vfs& vfs, const CommitRequest& request) {
  Result<CheckedParts> checked = check_all_parts(vfs, request);
  const auto here = checked ? checked->files : std::vector<ManifestFile>();
  return conclude_attempt(vfs, request, std::move(checked), here);
}

Manifest aborted_outcome(const Identity& identity) {
  return outcome_of({.identity = identity, .world_size = identity.part.world_size, .own = {}},
                    Outcome::kAborted);
}

Result<Manifest> abort_attempt(Vfs& vfs, const Manifest& aborted) {
  DF_TRY(Manifest outcome,
         place_outcome(vfs, {.manifest = aborted, .text = encode_manifest(aborted), .here = {}},
                       kAbortFailPoints));
  DF_TRY_VOID(settle_record(vfs, attempt_dir_name(name_of(aborted.point)), kAbortFailPoints));
  return outcome;
}

Status place_decided(Vfs& vfs, const DecidedOutcome& decided) {
  const Manifest& manifest = decided.manifest;
  const bool commits = manifest.outcome == Outcome::kCommitted;
  const RecordFailPoints& points = commits ? kCommitFailPoints : kAbortFailPoints;
  DF_TRY(const Manifest placed,
         place_outcome(vfs, {.manifest = manifest, .text = decided.text, .here = decided.here},
                       points));
  const std::string directory = attempt_dir_name(name_of(manifest.point));
  DF_TRY_VOID(settle_record(vfs, directory, points));
  // Records of one abort may differ: a process that finds no header knows no generation.
  if (placed == manifest || (!commits && placed.outcome == Outcome::kAborted)) return {};
  return fail(ErrorCode::kMismatch, vfs.path_of(directory) + " has another outcome already");
}

}  // namespace deepfreeze

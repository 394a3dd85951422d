// Repairing a manifest. The attempt is never undecided in between: a claimant that came by would
// abort it, and a collector delete what was to be saved.
//
//  1  manifest.json is read and does not verify.
//  2  The files are all there and sealed, and their headers agree: step 5 of the commit protocol.
//     The manifest that step 6 would make of them is known by now, to the byte.
//  3  The damaged one shows that the outcome was "committed": it says so, or is as long as the new
//     one. An aborted one lists no files.
//  4  Nobody has claimed a newer generation.
//  5  All blocks and the state tree verify, as a reader checks them.
//  6  A copy of the damaged one is kept as manifest.bad-<nonce>.json: tmp, sync, rename, sync.
//  7  Still no newer claim, the same damaged text, and no deletion has begun.
//  8  manifest.<nonce>.tmp, sync, rename over manifest.json, sync the attempt's directory.
//
// Two that repair at once write the same bytes. A power cut leaves the damaged one or the new one.
#include "restore/repair_manifest.h"

#include <fmt/format.h>

#include "base/hex.h"
#include "base/random_id.h"
#include "base/try.h"
#include "manifest/claims.h"
#include "manifest/commit.h"
#include "manifest/record_file.h"
#include "manifest/run_directory.h"
#include "manifest/sealed_parts.h"

namespace deepfreeze {
namespace {

constexpr RecordFailPoints kKeepFailPoints = {"repair.copy_written", "repair.copy_renamed",
                                              "repair.copy_synced"};
constexpr RecordFailPoints kPublishFailPoints = {"repair.written", "repair.renamed",
                                                 "repair.synced"};
constexpr std::string_view kSaysCommitted = R"("outcome":"committed")";

std::string manifest_path(const AttemptName& name) {
  return join_name(attempt_dir_name(name), kManifestFile);
}

// Step 1.
Result<std::string> read_damaged(Vfs& vfs, const AttemptName& name) {
  const std::string path = manifest_path(name);
  DF_TRY(std::string text, read_file(vfs, path, kManifestBytesMax));
  const auto manifest = decode_manifest(text);
  if (manifest) {
    return fail(ErrorCode::kInvalidArgument,
                vfs.path_of(path) + " verifies: it is not damaged, but may be of another attempt");
  }
  if (manifest.error().code() != ErrorCode::kCorrupt) return std::unexpected(manifest.error());
  return text;
}

// Step 2.
Result<Manifest> manifest_of_files(Vfs& vfs, const std::string& run_id, const AttemptName& name) {
  const std::optional<Identity> identity = find_identity(vfs, name);
  if (!identity || identity->run_id != run_id) {
    return fail(ErrorCode::kIncomplete, "no file of it has a readable header that names this run");
  }
  const CommitRequest request{
      .identity = *identity, .world_size = identity->part.world_size, .own = {}};
  DF_TRY(const std::vector<PartName> parts, present_parts(vfs, request));
  DF_TRY(CheckedParts checked, check_parts(vfs, request, parts));
  return committed_manifest(request, std::move(checked));
}

// Step 3.
Status check_was_committed(const RepairPlan& plan) {
  if (plan.damaged.find(kSaysCommitted) != std::string::npos) return {};
  if (plan.damaged.size() == encode_manifest(plan.manifest).size()) return {};
  return fail(ErrorCode::kMismatch,
              "what is left of the manifest does not tell that the attempt was committed");
}

// Step 5.
Status check_data(Vfs& vfs, const RepairPlan& plan, const ReadSettings& settings) {
  ReadSettings all = settings;
  all.check_tree = true;
  DF_TRY(const std::vector<Fault> faults, verify_attempt(vfs, plan.manifest, all));
  if (faults.empty()) return {};
  const Fault& first = faults.front();
  return fail(first.unread ? ErrorCode::kIo : ErrorCode::kCorrupt,
              fmt::format("{}: {}", first.file, first.cause));
}

// Step 6.
Result<std::string> keep_damaged(Vfs& vfs, const RepairPlan& plan) {
  const std::string directory = attempt_dir_name(plan.name);
  const std::string name = fmt::format("manifest.bad-{}.json", hex64(random_id()));
  DF_TRY_VOID(place_record(vfs, {.directory = directory, .name = name, .text = plan.damaged},
                           kKeepFailPoints));
  DF_TRY_VOID(settle_record(vfs, directory, kKeepFailPoints));
  return join_name(directory, name);
}

// Step 7.
Status check_unchanged(Vfs& vfs, const RepairPlan& plan) {
  DF_TRY_VOID(check_not_fenced(vfs, plan.manifest.point.generation));
  DF_TRY(const std::vector<DirEntry> entries, vfs.list(attempt_dir_name(plan.name)));
  const auto text = read_file(vfs, manifest_path(plan.name), kManifestBytesMax);
  if (text && *text == plan.damaged && !has_name(entries, kDeletedManifestFile)) return {};
  return fail(ErrorCode::kCancelled, "somebody else has changed the attempt meanwhile");
}

// Step 8.
Status publish(Vfs& vfs, const RepairPlan& plan) {
  const std::string directory = attempt_dir_name(plan.name);
  const std::string text = encode_manifest(plan.manifest);
  DF_TRY_VOID(replace_record(vfs, {.directory = directory, .name = kManifestFile, .text = text},
                             kPublishFailPoints));
  const Status settled = settle_record(vfs, directory, kPublishFailPoints);
  if (settled) return {};
  return fail(ErrorCode::kIo, "outcome unknown: " + settled.error().message(),
              settled.error().os_errno());
}

}  // namespace

Result<RepairPlan> plan_repair(Vfs& vfs, const std::string& run_id, const AttemptName& name) {
  RepairPlan plan{.name = name, .manifest = {}, .damaged = {}};
  DF_TRY(plan.damaged, read_damaged(vfs, name));
  DF_TRY(plan.manifest, manifest_of_files(vfs, run_id, name));
  DF_TRY_VOID(check_was_committed(plan));
  DF_TRY_VOID(check_not_fenced(vfs, plan.manifest.point.generation));
  return plan;
}

Result<std::string> repair_manifest(Vfs& vfs, const RepairPlan& plan,
                                    const ReadSettings& settings) {
  DF_TRY_VOID(check_data(vfs, plan, settings));
  DF_TRY(std::string kept, keep_damaged(vfs, plan));
  DF_TRY_VOID(check_unchanged(vfs, plan));
  DF_TRY_VOID(publish(vfs, plan));
  return kept;
}

}  // namespace deepfreeze

// Repairing a manifest. The attempt is never undecided in between: a claimant that came by would
// abort it, and a collector would delete the checkpoint that is to be saved.
//
//  1  manifest.json is read and does not verify.
//  2  The files are all there and sealed, and their headers agree: step 5 of the commit protocol.
//     The manifest that step 6 would make of them is known by now, to the byte.
//  3  The damaged one shows that the outcome was "committed": it says so, or is as long as the new
//     one. An aborted one lists no files. It is not longer: then it held something we don't know.
//  4  The current line passes through it, and every newer claim verifies, which tells so.
//  5  All blocks and the state tree verify, as a reader checks them.
//  6  Step 4 still holds, the damaged text is the same, and no deletion has begun.
//  7  A copy of the damaged one is kept as manifest.bad-<nonce>.json: tmp, sync, rename, sync. One
//     that is there already will do, once its name is durable.
//  8  manifest.<nonce>.tmp, sync, step 6 once more, rename over manifest.json, sync the attempt's
//     directory.
//
// A power cut leaves the damaged one or the new one.
#include "restore/repair_manifest.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/hex.h"
#include "base/random_id.h"
#include "base/try.h"
#include "manifest/commit.h"
#include "manifest/history.h"
#include "manifest/name_kind.h"
#include "manifest/record_file.h"
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
  const Identity identity = find_identity(vfs, name).value_or(Identity{});
  if (identity.run_id != run_id) {
    return fail(ErrorCode::kIncomplete, "no file of it has a readable header that names this run");
  }
  const CommitRequest request{
      .identity = identity, .world_size = identity.part.world_size, .own = {}};
  DF_TRY(const std::vector<PartName> parts, present_parts(vfs, request));
  DF_TRY(CheckedParts checked, check_parts(vfs, request, parts));
  return committed_manifest(request, std::move(checked));
}

// Step 3.
Status check_was_committed(const RepairPlan& plan) {
  const std::size_t bytes = encode_manifest(plan.manifest).size();
  if (plan.damaged.size() > bytes) {
    return fail(ErrorCode::kMismatch,
                fmt::format("it has {} bytes, and one made from the headers has {}: another "
                            "version may have stored more in it",
                            plan.damaged.size(), bytes));
  }
  if (plan.damaged.find(kSaysCommitted) != std::string::npos) return {};
  if (plan.damaged.size() == bytes) return {};
  return fail(ErrorCode::kMismatch,
              "the damaged manifest does not show that the attempt was committed");
}

// Step 4. A checkpoint that a newer line did not begin from must not appear beside that line.
Status check_on_line(const RunListing& listing, const Point& point) {
  const std::uint64_t highest = highest_generation(listing);
  if (highest <= point.generation) return {};
  const auto verified =
      static_cast<std::uint64_t>(std::ranges::count_if(listing.claims, [&](const Claim& claim) {
        return claim.generation > point.generation && claim.record.has_value();
      }));
  // Numbers are claimed one after the other.
  if (verified != highest - point.generation) {
    return fail(ErrorCode::kFenced,
                fmt::format("generation {} is fenced, and not all newer claims verify: the steps "
                            "they resumed from are lost",
                            point.generation));
  }
  if (on_current_line(listing, point)) return {};
  return fail(ErrorCode::kFenced,
              fmt::format("generation {} is fenced: the line of generation {}, which has been "
                          "claimed, does not pass through it",
                          point.generation, highest));
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
Status check_unchanged(Vfs& vfs, const RepairPlan& plan) {
  DF_TRY(const RunListing listing, read_run(vfs));
  DF_TRY_VOID(check_on_line(listing, plan.manifest.point));
  DF_TRY(const std::vector<DirEntry> entries, vfs.list(attempt_dir_name(plan.name)));
  const auto text = read_file(vfs, manifest_path(plan.name), kManifestBytesMax);
  if (text == plan.damaged && !has_name(entries, kDeletedManifestFile)) return {};
  return fail(ErrorCode::kCancelled, "somebody else has changed the attempt meanwhile");
}

// The name of a copy that an earlier repair kept; empty if there is none.
Result<std::string> find_copy(Vfs& vfs, const RepairPlan& plan) {
  const std::string directory = attempt_dir_name(plan.name);
  DF_TRY(const std::vector<DirEntry> entries, vfs.list(directory));
  for (const DirEntry& entry : entries) {
    if (kind_in_attempt(entry) != NameKind::kKeptManifest) continue;
    const auto text = read_file(vfs, join_name(directory, entry.name), plan.damaged.size());
    if (text && *text == plan.damaged) return entry.name;
  }
  return "";
}

// Step 7.
Result<std::string> keep_damaged(Vfs& vfs, const RepairPlan& plan) {
  const std::string directory = attempt_dir_name(plan.name);
  DF_TRY(std::string name, find_copy(vfs, plan));
  if (name.empty()) {
    name = fmt::format("manifest.bad-{}.json", hex64(random_id()));
    DF_TRY_VOID(place_record(vfs, {.directory = directory, .name = name, .text = plan.damaged},
                             kKeepFailPoints));
  }
  DF_TRY_VOID(settle_record(vfs, directory, kKeepFailPoints));
  return join_name(directory, name);
}

// Step 8.
Status publish(Vfs& vfs, const RepairPlan& plan) {
  const std::string directory = attempt_dir_name(plan.name);
  const std::string text = encode_manifest(plan.manifest);
  DF_TRY_VOID(replace_record(vfs, {.directory = directory, .name = kManifestFile, .text = text},
                             kPublishFailPoints, [&] { return check_unchanged(vfs, plan); }));
  const Status settled = settle_record(vfs, directory, kPublishFailPoints);
  if (settled) return {};
  return fail(ErrorCode::kIo, "outcome unknown: " + settled.error().message(),
              settled.error().os_errno());
}

}  // namespace

Result<RepairPlan> plan_repair(Vfs& vfs, const RunListing& listing, const AttemptName& name) {
  RepairPlan plan{.name = name, .manifest = {}, .damaged = {}};
  DF_TRY(plan.damaged, read_damaged(vfs, name));
  DF_TRY(plan.manifest, manifest_of_files(vfs, listing.run.run_id, name));
  DF_TRY_VOID(check_was_committed(plan));
  DF_TRY_VOID(check_on_line(listing, plan.manifest.point));
  return plan;
}

Result<std::string> repair_manifest(Vfs& vfs, const RepairPlan& plan,
                                    const ReadSettings& settings) {
  DF_TRY_VOID(check_data(vfs, plan, settings));
  DF_TRY_VOID(check_unchanged(vfs, plan));
  DF_TRY(std::string kept, keep_damaged(vfs, plan));
  DF_TRY_VOID(publish(vfs, plan));
  return kept;
}

}  // namespace deepfreeze

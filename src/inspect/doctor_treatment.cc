#include "inspect/doctor_treatment.h"

#include <fmt/format.h>

#include <algorithm>

#include "manifest/run_file.h"
#include "restore/repair_manifest.h"

namespace deepfreeze {
namespace {

// Only checkpoints tell whether the run is a branch of another.
std::string how_written(const RunListing& listing) {
  const std::string how = "written anew from the other records";
  if (std::ranges::any_of(listing.attempts, &AttemptState::committed)) return how;
  return how + "; none of them tells whether it has a parent";
}

void mend_run_file(const OpenedRun& run, Repairs& repairs) {
  const auto written = repair_run_file(*run.vfs, run.listing.run);
  if (written) {
    repairs.mended.push_back({std::string(kRunFile), how_written(run.listing)});
  } else {
    repairs.refused.push_back({std::string(kRunFile), written.error().message()});
  }
}

Result<std::string> publish_anew(const OpenedRun& run, const AttemptName& name,
                                 const Watch& watch) {
  auto plan = plan_repair(*run.vfs, run.listing, name);
  if (!plan) return std::unexpected(plan.error());
  const std::string label = fmt::format("verify step {}", name.step);
  return repair_manifest(
      *run.vfs, *plan,
      {.thread_count = kReadThreads, .on_progress = watch(label, stored_bytes(plan->manifest))});
}

void repair_attempt(const OpenedRun& run, const AttemptName& name, const Watch& watch,
                    Repairs& repairs) {
  const std::string place = fmt::format("{}/{}", attempt_dir_name(name), kManifestFile);
  const auto kept = publish_anew(run, name, watch);
  if (kept) {
    repairs.mended.push_back({place, "published anew; the damaged one is kept as " + *kept});
  } else {
    repairs.refused.push_back({place, kept.error().message()});
  }
}

}  // namespace

Repairs repair_run(const OpenedRun& run, const std::vector<Oddity>& found, const Watch& watch) {
  Repairs repairs;
  for (const Oddity& oddity : found) {
    switch (oddity.kind) {
      case OddityKind::kRunFileMissing:
      case OddityKind::kRunFileDamaged:
        mend_run_file(run, repairs);
        break;
      case OddityKind::kManifestDamaged:
        repair_attempt(run, *oddity.attempt, watch, repairs);
        break;
      case OddityKind::kRunFileUnread:
      case OddityKind::kManifestUnread:
        repairs.refused.push_back({oddity.name, oddity.detail});
        break;
      default:
        break;
    }
  }
  return repairs;
}

DebrisReport tidy_run(const OpenedRun& run, const std::vector<Oddity>& found) {
  if (!run.listing.run_rebuilt) return delete_debris(*run.vfs, run.listing, found);
  return {.deleted = {},
          .left = {{std::string(kRunFile), 0,
                    "nothing is deleted while only other records show which run this is; "
                    "--repair comes first"}},
          .failed = true};
}

}  // namespace deepfreeze

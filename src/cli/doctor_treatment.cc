#include "cli/doctor_treatment.h"

#include <fmt/format.h>

#include "cli/progress.h"
#include "restore/repair_manifest.h"

namespace deepfreeze {
namespace {

// Only where the listing could be rebuilt, so that it is never a new run that is made here.
void repair_run_file(const OpenedRun& run, Repairs& repairs) {
  const auto written = create_or_open_run(*run.vfs, {});
  if (written) {
    repairs.mended.push_back({std::string(kRunFile), "written anew from the other records"});
  } else {
    repairs.refused.push_back({std::string(kRunFile), written.error().message()});
  }
}

Result<std::string> publish_anew(const OpenedRun& run, const AttemptName& name,
                                 const Console& console) {
  auto plan = plan_repair(*run.vfs, run.listing.run.run_id, name);
  if (!plan) return std::unexpected(plan.error());
  Progress progress(console, fmt::format("verify step {}", name.step),
                    stored_bytes(plan->manifest));
  return repair_manifest(*run.vfs, *plan,
                         {.thread_count = kReadThreads,
                          .on_progress = [&](std::uint64_t done) { progress.update(done); }});
}

void repair_attempt(const OpenedRun& run, const AttemptName& name, const Console& console,
                    Repairs& repairs) {
  const std::string place = fmt::format("{}/{}", attempt_dir_name(name), kManifestFile);
  const auto kept = publish_anew(run, name, console);
  if (kept) {
    repairs.mended.push_back({place, "published anew; the damaged one is kept as " + *kept});
  } else {
    repairs.refused.push_back({place, kept.error().message()});
  }
}

}  // namespace

Repairs repair_run(const OpenedRun& run, const std::vector<Oddity>& found, const Console& console) {
  Repairs repairs;
  for (const Oddity& oddity : found) {
    if (oddity.kind == OddityKind::kRunFileMissing || oddity.kind == OddityKind::kRunFileDamaged) {
      repair_run_file(run, repairs);
    }
    if (oddity.kind == OddityKind::kManifestDamaged) {
      repair_attempt(run, *oddity.attempt, console, repairs);
    }
  }
  return repairs;
}

}  // namespace deepfreeze

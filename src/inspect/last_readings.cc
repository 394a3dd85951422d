#include "inspect/last_readings.h"

#include <algorithm>

#include "base/clock.h"
#include "manifest/history.h"
#include "manifest/scrub_memory.h"

namespace deepfreeze {

std::vector<LastReading> last_readings(const OpenedRun& run) {
  const auto memory = recall_scrubs(*run.vfs, run.listing.run.run_id);
  std::vector<LastReading> readings;
  for (const Manifest& manifest : newest_first(run.listing)) {
    LastReading reading{.attempt = {manifest.point.step, manifest.point.attempt_id},
                        .written_micros = manifest.annotations.wall_micros,
                        .read_micros = {}};
    if (memory) {
      const auto found = std::ranges::find(memory->entries, reading.attempt, &ScrubEntry::attempt);
      if (found != memory->entries.end()) {
        reading.read_micros = found->wall_micros;
        reading.good = found->good;
      }
    }
    readings.push_back(reading);
  }
  return readings;
}

void remember_readings(Vfs& vfs, const std::string& run_id, const std::vector<Reading>& readings) {
  auto memory = recall_scrubs(vfs, run_id);
  if (!memory) return;
  bool changed = false;
  for (const auto& [attempt, verdict] : readings) {
    if (verdict != Verdict::kGood && verdict != Verdict::kFault) continue;
    std::erase_if(memory->entries, [&](const ScrubEntry& one) { return one.attempt == attempt; });
    memory->entries.push_back({attempt, wall_micros(), verdict == Verdict::kGood});
    changed = true;
  }
  if (changed) (void)remember_scrubs(vfs, *memory);
}

}  // namespace deepfreeze

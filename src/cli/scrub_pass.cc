#include "cli/scrub_pass.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/clock.h"
#include "base/try.h"
#include "cli/output.h"

namespace deepfreeze {
namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::min();

// One checkpoint that is due.
struct Turn {
  ScrubbedRun* run = nullptr;
  const AttemptState* attempt = nullptr;
  std::int64_t last_micros = kNever;
  std::size_t place = 0;  // among those of one time
};

bool is_checkpoint(const AttemptState& attempt) {
  return attempt.committed() || attempt.fault.has_value();
}

const ScrubEntry* find_entry(const ScrubbedRun& run, const AttemptName& name) {
  const auto& entries = run.memory.entries;
  const auto found = std::ranges::find(entries, name, &ScrubEntry::attempt);
  return found == entries.end() ? nullptr : &*found;
}

void forget(ScrubbedRun& run, const AttemptName& name) {
  std::erase_if(run.memory.entries, [&](const ScrubEntry& entry) { return entry.attempt == name; });
}

void keep_no_memory(ScrubbedRun& run, const Error& cause) {
  run.remembers = false;
  run.findings.notes.push_back("this pass is not remembered: " + cause.message());
}

void recall(ScrubbedRun& run) {
  const RunListing& listing = run.device->run.listing;
  auto memory = recall_scrubs(*run.device->run.vfs, listing.run.run_id);
  if (!memory) return keep_no_memory(run, memory.error());
  run.memory = std::move(*memory);
  std::erase_if(run.memory.entries, [&](const ScrubEntry& entry) {
    const auto found = std::ranges::find(listing.attempts, entry.attempt, &AttemptState::name);
    return found == listing.attempts.end();  // it was deleted since
  });
}

Status open(ScrubbedRun& run, RateLimit& limit) {
  DF_TRY(run.device, open_run_on_device(run.path, limit));
  check_records(run.device->run.listing, run.findings);
  recall(run);
  return {};
}

// A time to come says nothing: the clock was wrong then, or is now. What wall time orders here is
// only who waits longest.
std::int64_t last_time(const ScrubbedRun& run, const AttemptName& name) {
  const ScrubEntry* entry = find_entry(run, name);
  if (entry == nullptr || entry->wall_micros > wall_micros()) return kNever;
  return entry->wall_micros;
}

std::vector<Turn> turns_of(std::vector<ScrubbedRun>& runs) {
  std::vector<Turn> turns;
  for (ScrubbedRun& run : runs) {
    if (!run.device) continue;
    for (const AttemptState& attempt : run.device->run.listing.attempts) {
      if (!is_checkpoint(attempt)) continue;
      turns.push_back({&run, &attempt, last_time(run, attempt.name), turns.size()});
    }
  }
  std::ranges::sort(turns, {},
                    [](const Turn& turn) { return std::pair(turn.last_micros, turn.place); });
  return turns;
}

// After every checkpoint, so that a pass that is interrupted goes on where it stopped.
void remember(ScrubbedRun& run, const AttemptName& name, Verdict verdict) {
  forget(run, name);
  if (verdict != Verdict::kNothing) {
    run.memory.entries.push_back(
        {.attempt = name, .wall_micros = wall_micros(), .good = verdict == Verdict::kGood});
  }
  if (!run.remembers) return;
  const Status kept = remember_scrubs(*run.device->run.vfs, run.memory);
  if (!kept) keep_no_memory(run, kept.error());
}

void take(const Turn& turn, const Console& console) {
  ScrubbedRun& run = *turn.run;
  const CheckSettings settings{.deep = true, .thread_count = 1, .verb = "scrub"};
  const auto verdict =
      check_attempt(run.device->run, *turn.attempt, settings, console, run.findings);
  if (!verdict) {
    run.errors.push_back(verdict.error());
    return;
  }
  remember(run, turn.attempt->name, *verdict);
}

void leave_unread(const Turn& turn) {
  ScrubbedRun& run = *turn.run;
  ++run.unread_count;
  const ScrubEntry* entry = find_entry(run, turn.attempt->name);
  if (entry == nullptr || entry->good) return;
  run.findings.notes.push_back(fmt::format("{}: it had a fault when it was read last, {}",
                                           attempt_dir_name(entry->attempt),
                                           utc_time(entry->wall_micros)));
}

}  // namespace

std::vector<ScrubbedRun> scrub_runs(const std::vector<std::string>& paths, RateLimit& limit,
                                    const ScrubLimits& limits, const Console& console) {
  const auto start = Monotonic::now();
  std::vector<ScrubbedRun> runs(paths.size());
  for (std::size_t i = 0; i < paths.size(); ++i) {
    runs[i].path = paths[i];
    const Status opened = open(runs[i], limit);
    if (!opened) runs[i].errors.push_back(opened.error());
  }
  for (const Turn& turn : turns_of(runs)) {
    const bool late = limits.time_max && Monotonic::now() - start >= *limits.time_max;
    if (late) {
      leave_unread(turn);
    } else {
      take(turn, console);
    }
  }
  for (ScrubbedRun& run : runs) {
    if (run.device) add_device_note(*run.device->reader, run.findings);
  }
  return runs;
}

}  // namespace deepfreeze

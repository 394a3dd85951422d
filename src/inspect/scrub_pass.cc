#include "inspect/scrub_pass.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "base/try.h"
#include "inspect/text.h"
#include "manifest/node_files.h"
#include "manifest/record_file.h"
#include "object/open_object.h"
#include "restore/device_reader.h"

namespace deepfreeze {
namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::min();

// One checkpoint that is due.
struct Turn {
  ScrubbedRun* run = nullptr;
  AttemptName name;
  std::int64_t last_micros = kNever;
  std::size_t place = 0;  // among those of one time
  bool is_of_several_nodes = false;
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

void recall(ScrubbedRun& run, Vfs& vfs, const RunListing& listing) {
  auto memory = recall_scrubs(vfs, run.run_id);
  if (!memory) return keep_no_memory(run, memory.error());
  run.memory = std::move(*memory);
  std::erase_if(run.memory.entries, [&](const ScrubEntry& entry) {
    const auto found = std::ranges::find(listing.attempts, entry.attempt, &AttemptState::name);
    return found == listing.attempts.end();  // it was deleted since
  });
}

// For a checkpoint that no pass has read, the time it was written. A time in the future says
// nothing: the clock was wrong then, or is now. Wall time only decides here which checkpoint has
// waited longest.
std::int64_t last_time(const ScrubbedRun& run, const AttemptState& attempt) {
  const std::int64_t now = wall_micros();
  const ScrubEntry* entry = find_entry(run, attempt.name);
  if (entry != nullptr && entry->wall_micros <= now) return entry->wall_micros;
  if (!attempt.committed()) return kNever;
  const std::int64_t written = attempt.manifest->annotations.wall_micros;
  return written <= now ? written : kNever;
}

void note_cache(ScrubbedRun& run, const DeviceReader& reader) {
  if (run.read_through_cache.empty()) run.read_through_cache = reader.read_through_cache();
}

// Collects the turns of a run: the checkpoints to read. Keeps names and times, nothing else.
Status add_turns(ScrubbedRun& run, RateLimit& limit, std::vector<Turn>& turns) {
  DF_TRY(const OpenedDevice device, open_run_on_device(run.path, limit));
  const RunListing& listing = device.run.listing;
  run.run_id = listing.run.run_id;
  check_records(listing, run.findings);
  recall(run, *device.reader, listing);
  for (const AttemptState& attempt : listing.attempts) {
    if (!is_checkpoint(attempt)) continue;
    turns.push_back({.run = &run,
                     .name = attempt.name,
                     .last_micros = last_time(run, attempt),
                     .place = turns.size(),
                     .is_of_several_nodes =
                         attempt.committed() && is_of_several_nodes(listing, *attempt.manifest)});
  }
  note_cache(run, *device.reader);
  return {};
}

std::vector<Turn> turns_of(std::vector<ScrubbedRun>& runs, RateLimit& limit) {
  std::vector<Turn> turns;
  for (ScrubbedRun& run : runs) {
    const Status added = add_turns(run, limit, turns);
    if (!added) run.errors.push_back(added.error());
  }
  std::ranges::sort(turns, {},
                    [](const Turn& turn) { return std::pair(turn.last_micros, turn.place); });
  return turns;
}

// After every checkpoint, so that an interrupted pass continues at the right one.
void remember(ScrubbedRun& run, Vfs& vfs, const AttemptName& name, Verdict verdict) {
  if (verdict == Verdict::kUnread) return;
  forget(run, name);
  if (verdict != Verdict::kNothing) {
    run.memory.entries.push_back(
        {.attempt = name, .wall_micros = wall_micros(), .good = verdict == Verdict::kGood});
  }
  if (!run.remembers) return;
  const Status kept = remember_scrubs(vfs, run.memory);
  if (!kept) keep_no_memory(run, kept.error());
}

// As it is now: it may have been deleted since the runs were listed.
Result<Verdict> check_now(const Turn& turn, Vfs& vfs, FileReadings& readings, const Watch& watch) {
  ScrubbedRun& run = *turn.run;
  const AttemptName& name = turn.name;
  auto manifest = read_manifest(vfs, name, run.run_id);
  AttemptState attempt{.name = name, .manifest = {}, .fault = {}};
  if (manifest) {
    attempt.manifest = std::move(*manifest);
  } else if (manifest.error().code() == ErrorCode::kNotFound) {
    run.findings.notes.push_back(attempt_dir_name(name) + ": removed meanwhile");
    return Verdict::kNothing;
  } else if (manifest.error().code() == ErrorCode::kUnsupported) {
    return std::unexpected(manifest.error());
  } else {
    attempt.fault = manifest.error();
  }
  const CheckSettings settings{.deep = true,
                               .is_of_several_nodes = turn.is_of_several_nodes,
                               .readings = &readings,
                               .thread_count = 1,
                               .verb = "scrub"};
  return check_attempt(vfs, attempt, settings, watch, run.findings);
}

Result<Verdict> take(const Turn& turn, RateLimit& limit, FileReadings& readings,
                     const Watch& watch) {
  ScrubbedRun& run = *turn.run;
  DF_TRY(const auto device, open_device(run.path, limit));
  const auto verdict = check_now(turn, *device, readings, watch);
  note_cache(run, *device);
  if (verdict) remember(run, *device, turn.name, *verdict);
  return verdict;
}

std::optional<FileId> id_of(Vfs& vfs, const std::string& name) {
  const auto file = vfs.open_read(name, Access::kBuffered);
  return file ? (*file)->id() : std::nullopt;
}

// The paths of the checkpoints that have a file, by the file.
using Owners = std::map<FileId, std::vector<std::string>>;

Status add_owners(const std::string& path, Owners& owners) {
  DF_TRY(const auto vfs, open_vfs(path));
  DF_TRY(const RunListing listing, read_run(*vfs));
  for (const AttemptState& attempt : listing.attempts) {
    if (!attempt.committed()) continue;
    for (const ManifestFile& file : attempt.manifest->files) {
      const auto id = id_of(*vfs, join_name(attempt_dir_name(attempt.name), file.name));
      if (id) owners[*id].push_back(vfs->path_of(attempt_dir_name(attempt.name)));
    }
  }
  return {};
}

Status name_others(ScrubbedRun& run, const Owners& owners) {
  DF_TRY(const auto vfs, open_vfs(run.path));
  for (Finding& finding : run.findings.attempts) {
    const std::string own = vfs->path_of(finding.directory);
    for (Fault& fault : finding.faults) {
      const auto id = id_of(*vfs, join_name(finding.directory, fault.file));
      const auto found = id ? owners.find(*id) : owners.end();
      if (found == owners.end()) continue;
      std::ranges::copy_if(found->second, std::back_inserter(fault.also_in),
                           [&](const std::string& path) { return path != own; });
    }
  }
  return {};
}

// The further checkpoints that a bad file serves, if they share it; their own turns may not have
// come yet.
void name_others(std::vector<ScrubbedRun>& runs) {
  if (std::ranges::all_of(runs, [](const ScrubbedRun& run) { return run.findings.good(); })) return;
  Owners owners;
  for (const ScrubbedRun& run : runs) std::ignore = add_owners(run.path, owners);
  for (ScrubbedRun& run : runs) std::ignore = name_others(run, owners);
}

void leave_unread(const Turn& turn) {
  ScrubbedRun& run = *turn.run;
  ++run.unread_count;
  const ScrubEntry* entry = find_entry(run, turn.name);
  if (entry == nullptr || entry->good) return;
  run.findings.notes.push_back(fmt::format("{}: it had a fault when it was read last, {}",
                                           attempt_dir_name(entry->attempt),
                                           utc_time(entry->wall_micros)));
}

}  // namespace

std::vector<ScrubbedRun> scrub_runs(const std::vector<std::string>& paths, RateLimit& limit,
                                    const ScrubLimits& limits, const Watch& watch) {
  const auto start = limits.now();
  std::vector<ScrubbedRun> runs(paths.size());
  for (std::size_t i = 0; i < paths.size(); ++i) runs[i].path = paths[i];
  bool has_read = false;
  FileReadings readings;
  for (const Turn& turn : turns_of(runs, limit)) {
    const bool late = limits.time_max && limits.now() - start >= *limits.time_max;
    if (late && has_read) {
      leave_unread(turn);
      continue;
    }
    const auto verdict = take(turn, limit, readings, watch);
    if (!verdict) turn.run->errors.push_back(verdict.error());
    has_read = has_read || verdict == Verdict::kGood || verdict == Verdict::kFault;
  }
  name_others(runs);
  for (ScrubbedRun& run : runs) add_device_note(run.read_through_cache, run.findings);
  return runs;
}

}  // namespace deepfreeze

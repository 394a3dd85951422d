// A whole run's directory, planted, for readers, writers and the garbage collector. The good
// checkpoint in it is found, or its loss is explained; nothing else of it is ever lost.
#include <algorithm>
#include <array>
#include <map>

#include "api/open_checkpoint.h"
#include "fuzz/fuzz_target.h"
#include "fuzz/planted_run.h"
#include "manifest/claims.h"
#include "manifest/commit.h"
#include "manifest/history.h"
#include "manifest/retention.h"
#include "restore/snapshot.h"

namespace deepfreeze {
namespace {

using Contents = std::map<std::string, std::string>;

// Whatever stands in a run, these are the ways to say that it can't be used.
Status check_run_refusal(const Error& error) {
  constexpr std::array kAllowed = {ErrorCode::kCorrupt,         ErrorCode::kUnsupported,
                                   ErrorCode::kNotFound,        ErrorCode::kIo,
                                   ErrorCode::kIncomplete,      ErrorCode::kBusy,
                                   ErrorCode::kInvalidArgument, ErrorCode::kFenced};
  return check_refusal(error, kAllowed);
}

ReadSettings one_thread() { return {.thread_count = 1, .on_progress = {}}; }

// Every tensor of the checkpoint, or why not.
Status read_tensors(const Snapshot& snapshot) {
  for (const TensorSpec& spec : snapshot.tensors()) {
    std::vector<std::byte> bytes(spec_bytes(spec).value());
    const ReadTarget target{.key = spec.key, .into = bytes};
    DF_TRY_VOID(snapshot.read(std::span(&target, 1), one_thread()));
  }
  return {};
}

// What `restore` does with one step. Verified and then not to be read would be a broken promise.
Status open_and_read(SimDisk& disk, const Manifest& manifest) {
  const auto faults = verify_attempt(disk, manifest, one_thread());
  const auto snapshot = Snapshot::open(disk, manifest);
  if (!snapshot) {
    DF_TRY_VOID(promise(!faults || !faults->empty(), "verified, and can't be opened"));
    return std::unexpected(snapshot.error());
  }
  const Status read = read_tensors(**snapshot);
  const bool verifies = faults && faults->empty();
  DF_TRY_VOID(promise(faults && (!verifies || read), "verified, and can't be read"));
  DF_TRY_VOID(promise(verifies || !read, "read, and does not verify"));
  return read;
}

const AttemptState* find_good(const RunListing& listing) {
  const auto found = std::ranges::find(listing.attempts, kGoodAttempt, &AttemptState::name);
  return found == listing.attempts.end() ? nullptr : &*found;
}

// If nothing touched the good checkpoint it is listed; if its run became another, as a fault.
Status check_good_is_listed(const RunListing& listing) {
  const AttemptState* state = find_good(listing);
  DF_TRY_VOID(promise(state != nullptr, "the good checkpoint is not listed"));
  const bool is_own = listing.run.run_id == kPlantedRunId;
  DF_TRY_VOID(promise(state->committed() == is_own, "the good checkpoint is listed as bad"));
  return promise(!state->committed() || *state->manifest == good_manifest(), "another manifest");
}

// The newest that can be read, as a restore falls back; every other one has said why not.
Status check_newest(SimDisk& disk, const RunListing& listing, bool good_is_touched) {
  bool any = false;
  for (const Manifest& manifest : newest_first(listing)) {
    const Status read = open_and_read(disk, manifest);
    any = any || read.has_value();
    if (read) continue;
    DF_TRY_VOID(check_run_refusal(read.error()));
    const bool is_good = !good_is_touched && manifest == good_manifest();
    DF_TRY_VOID(promise(!is_good, "the good checkpoint is not read"));
  }
  const AttemptState* good = find_good(listing);
  const bool must = !good_is_touched && good != nullptr && good->committed();
  return promise(any || !must, "nothing is restored");
}

Status check_reading(SimDisk& disk, bool good_is_touched) {
  const auto listing = read_run(disk);
  if (!listing) {
    DF_TRY_VOID(check_run_refusal(listing.error()));
    const bool is_newer = listing.error().code() == ErrorCode::kUnsupported;
    return promise(good_is_touched || is_newer, "a good run is refused");
  }
  if (!good_is_touched) DF_TRY_VOID(check_good_is_listed(*listing));
  const std::size_t described = describe_all(disk, *listing).size();
  DF_TRY_VOID(promise(described >= newest_first(*listing).size(), "a step is not described"));
  return check_newest(disk, *listing, good_is_touched);
}

Contents contents_below(const SimDisk& disk, std::string_view directory) {
  Contents contents;
  for (const std::string& name : disk.list_all()) {
    if (name.starts_with(directory) && !name.ends_with('/')) contents[name] = *disk.contents(name);
  }
  return contents;
}

// Opens the run as the next process of a training does.
Status take_over(SimDisk& disk) {
  DF_TRY(const RunRecord run, create_or_open_run(disk, {}));
  DF_TRY(const GenerationRecord claim, claim_generation(disk, run.run_id, {}));
  DF_TRY(const RunListing listing, read_run(disk));
  DF_TRY_VOID(promise(highest_generation(listing) >= claim.generation, "a claim is not listed"));
  DF_TRY(const std::size_t aborted, abort_undecided(disk, listing, claim.generation));
  return promise(aborted <= listing.attempts.size(), "more given up than there were");
}

// A process that takes the run over loses nothing committed.
Status check_taking_over(const PlantedRun& planted) {
  const auto disk = planted.disk->clone();
  const std::string directory = attempt_dir_name(kGoodAttempt);
  const Contents before = contents_below(*disk, directory);
  const Status taken = take_over(*disk);
  if (!taken) DF_TRY_VOID(check_run_refusal(taken.error()));
  if (planted.good_is_touched) return {};
  return promise(contents_below(*disk, directory) == before, "the good checkpoint was changed");
}

bool lies_in(std::string_view name, std::span<const AttemptName> attempts) {
  return std::ranges::any_of(attempts, [&](const AttemptName& attempt) {
    return name.starts_with(attempt_dir_name(attempt) + "/");
  });
}

// The collector touches only attempts that it may delete, and never the newest.
Status check_collecting(const PlantedRun& planted) {
  const auto disk = planted.disk->clone();
  const auto listing = read_run(*disk);
  if (!listing) return {};
  const Keep keep{.last = 1, .every = {}, .best = {}};
  std::vector<AttemptName> may_go = expired(*listing, keep);
  std::ranges::copy(listing->half_deleted, std::back_inserter(may_go));
  const Contents before = contents_below(*disk, "");
  const auto report = collect_garbage(*disk, keep);
  if (!report) DF_TRY_VOID(check_run_refusal(report.error()));
  for (const auto& [name, content] : before) {
    if (lies_in(name, may_go)) continue;
    DF_TRY_VOID(promise(disk->contents(name) == content, "collected what must stay: " + name));
  }
  const std::vector<Manifest> newest = newest_first(*listing);
  if (newest.empty()) return {};
  const AttemptName name{newest.front().point.step, newest.front().point.attempt_id};
  return promise(std::ranges::find(may_go, name) == may_go.end(), "the newest may go");
}

}  // namespace

Status fuzz_run(std::string_view input) {
  const PlantedRun planted = plant_run(input);
  DF_TRY_VOID(check_reading(*planted.disk, planted.good_is_touched));
  DF_TRY_VOID(check_taking_over(planted));
  return check_collecting(planted);
}

}  // namespace deepfreeze

// Other ranks' files, planted in an attempt: rank 0 commits it or says why not, and a committed
// attempt can be opened.
#include <array>

#include "crash/attempt_maker.h"
#include "fuzz/fuzz_target.h"
#include "fuzz/planted_run.h"
#include "manifest/run_directory.h"
#include "restore/snapshot.h"

namespace deepfreeze {
namespace {

Identity identity_for(std::string_view input) {
  const std::uint32_t world_size = input.contains("-of-00002-") ? 2 : 1;
  return make_identity(std::string(kPlantedRunId), {1, kNewAttempt.step, 2, kNewAttempt.attempt_id},
                       {.rank = 0, .world_size = world_size, .file = 0, .file_count = 1});
}

Status check_refusal_of_commit(const Error& error) {
  constexpr std::array kAllowed = {
      ErrorCode::kCorrupt,    ErrorCode::kUnsupported, ErrorCode::kNotFound,  ErrorCode::kIo,
      ErrorCode::kIncomplete, ErrorCode::kMismatch,    ErrorCode::kCancelled, ErrorCode::kFenced};
  return check_refusal(error, kAllowed);
}

bool has_outcome(const SimDisk& disk) {
  return disk.contents(join_name(attempt_dir_name(kNewAttempt), kManifestFile)).has_value();
}

// If another outcome stood there already, that one counts.
Status check_committed(SimDisk& disk, const Manifest& manifest, bool was_decided) {
  DF_TRY_VOID(promise(manifest.outcome == Outcome::kCommitted, "committed what was given up"));
  const auto read = read_manifest(disk, kNewAttempt, kPlantedRunId);
  DF_TRY_VOID(promise(read && *read == manifest, "another manifest than was committed"));
  if (was_decided) return {};
  const auto opened = Snapshot::open(disk, manifest);
  if (!opened) return broken("committed and not to be opened: " + opened.error().message());
  return {};
}

}  // namespace

Status fuzz_attempt(std::string_view input) {
  const PlantedRun planted = plant_run(input);
  SimDisk& disk = *planted.disk;
  const bool was_decided = has_outcome(disk);
  const auto committed = commit_attempt(disk, make_request(identity_for(input)));
  if (committed) return check_committed(disk, *committed, was_decided);
  DF_TRY_VOID(check_refusal_of_commit(committed.error()));
  const auto left = read_manifest(disk, kNewAttempt, kPlantedRunId);
  return promise(was_decided || !left || left->outcome == Outcome::kAborted,
                 "refused, and committed all the same");
}

}  // namespace deepfreeze

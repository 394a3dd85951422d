#include "manifest/several_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "base/fail_point.h"
#include "base/polling.h"
#include "base/try.h"
#include "manifest/commit.h"
#include "manifest/in_doubt.h"
#include "manifest/record_file.h"
#include "manifest/run_directory.h"
#include "manifest/sealed_parts.h"

namespace deepfreeze {
namespace {

Error given_up(Vfs& vfs, const Identity& identity) {
  const AttemptName name = attempt_of(identity);
  const auto reported = reported_failure(vfs, name);
  return {ErrorCode::kCancelled, fmt::format("{} has been given up{}", attempt_dir_name(name),
                                             reported ? ": " + reported->message() : " by rank 0")};
}

// Empty as long as no outcome is published.
Result<std::optional<Manifest>> published(Vfs& vfs, const Identity& identity) {
  const std::string directory = attempt_dir_name(attempt_of(identity));
  const auto entries = vfs.list(directory);
  if (!entries) {
    const bool gone = entries.error().code() == ErrorCode::kNotFound;
    return std::unexpected(gone ? given_up(vfs, identity) : entries.error());
  }
  if (!has_name(*entries, kManifestFile)) return std::nullopt;
  DF_TRY(Manifest manifest, read_manifest(vfs, attempt_of(identity), identity.run_id));
  return manifest;
}

Result<Manifest> wait_for_outcome(Vfs& vfs, const Identity& identity,
                                  std::chrono::milliseconds deadline) {
  Polling polling(deadline);
  do {
    DF_TRY(auto manifest, published(vfs, identity));
    if (manifest) return *std::move(manifest);
  } while (polling.again());
  return fail(ErrorCode::kTimeout,
              fmt::format("rank 0 has published none of {} after {} ms",
                          attempt_dir_name(attempt_of(identity)), deadline.count()));
}

// The rank that commits may have been cut off between its rename and its sync: a visible name is
// durable only after a sync of ours.
Result<Manifest> wait_until_settled(Vfs& vfs, const Identity& identity,
                                    std::chrono::milliseconds deadline) {
  DF_TRY(Manifest manifest, wait_for_outcome(vfs, identity, deadline));
  if (manifest.outcome != Outcome::kCommitted) return std::unexpected(given_up(vfs, identity));
  DF_FAIL_POINT("await.published");
  DF_TRY_VOID(vfs.sync_dir(attempt_dir_name(attempt_of(identity))));
  DF_FAIL_POINT("await.synced");
  return manifest;
}

bool is_of_rank(const std::optional<PartName>& part, const PartName& own) {
  return part && part->rank == own.rank && part->world_size == own.world_size;
}

// The sealed name of a file that may not be sealed.
std::string as_sealed(std::string name) {
  constexpr std::string_view kUnsealed = ".part";
  if (!name.ends_with(kUnsealed)) return name;
  return name.substr(0, name.size() - kUnsealed.size()) + ".safetensors";
}

// Another directory decides the attempt, or may do so, and no outcome has come from it.
bool is_in_doubt(Vfs& vfs, const Identity& own) {
  const auto here = read_deciders(vfs);
  if (here && !doubt_about({here->claims, here->node}, own)) return false;
  const auto manifest = published(vfs, own);
  return !manifest || !*manifest;
}

// For ranks that do not commit: once their files have their final names, rank 0 may publish them.
bool is_surely_aborted(Vfs& vfs, const Identity& own) {
  const auto outcome = abort_attempt(vfs, aborted_outcome(own));
  return outcome && outcome->outcome == Outcome::kAborted;
}

bool has_sealed_files(Vfs& vfs, const Identity& own) {
  const auto entries = vfs.list(attempt_dir_name(attempt_of(own)));
  if (!entries) return entries.error().code() != ErrorCode::kNotFound;  // else nobody knows
  return std::ranges::any_of(*entries, [&](const DirEntry& entry) {
    return is_of_rank(parse_sealed_file_name(entry.name), own.part);
  });
}

}  // namespace

Status join_attempt(Vfs& vfs, const AttemptName& name) {
  const Status made = vfs.make_dir(attempt_dir_name(name));
  if (!made && made.error().code() != ErrorCode::kExists) return made;
  DF_FAIL_POINT("commit.directory_made");
  DF_TRY_VOID(vfs.sync_dir(""));
  DF_FAIL_POINT("commit.directory_synced");
  return {};
}

Result<Manifest> await_outcome(Vfs& vfs, const Identity& identity,
                               std::chrono::milliseconds deadline) {
  auto manifest = wait_until_settled(vfs, identity, deadline);
  if (manifest || manifest.error().code() == ErrorCode::kCancelled) return manifest;
  return std::unexpected(manifest.error().within("outcome unknown"));
}

void give_attempt_up(Vfs& vfs, const Identity& own) {
  const auto outcome = abort_attempt(vfs, aborted_outcome(own));
  if (outcome || outcome.error().code() != ErrorCode::kNoSpace) return;
  std::ignore = remove_attempt(vfs, attempt_of(own));
}

void remove_own_files(Vfs& vfs, const Identity& own) {
  const std::string directory = attempt_dir_name(attempt_of(own));
  const auto entries = vfs.list(directory);
  if (!entries) return;
  for (const DirEntry& entry : *entries) {
    if (!is_of_rank(parse_sealed_file_name(as_sealed(entry.name)), own.part)) continue;
    std::ignore = vfs.remove_file(join_name(directory, entry.name));
  }
}

bool withdraw(Vfs& vfs, const Identity& own, const Error& error) {
  const bool commits = own.part.rank == 0;
  if (!commits && has_sealed_files(vfs, own)) {
    if (is_in_doubt(vfs, own)) {
      report_failed_part(vfs, attempt_of(own), own.part, error);
      return false;
    }
    if (!is_surely_aborted(vfs, own)) return false;
  }
  remove_own_files(vfs, own);
  report_failed_part(vfs, attempt_of(own), own.part, error);
  if (commits) give_attempt_up(vfs, own);
  return true;
}

void withdraw_unjoined(Vfs& vfs, const Identity& own, const Error& error) {
  std::ignore = join_attempt(vfs, attempt_of(own));
  std::ignore = withdraw(vfs, own, error);  // it has sealed nothing
}

}  // namespace deepfreeze

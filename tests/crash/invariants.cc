#include "crash/invariants.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/try.h"
#include "crash/attempt_maker.h"
#include "manifest/claims.h"
#include "manifest/history.h"
#include "manifest/retention.h"
#include "manifest/run_file.h"

namespace deepfreeze {
namespace {

using Broken = std::optional<std::string>;

struct Found {
  SimDisk& disk;
  const Promises& promises;
  const RunListing& listing;
};

AttemptName name_of(const Point& point) { return {point.step, point.attempt_id}; }

bool contains(const std::vector<AttemptName>& names, const AttemptName& name) {
  return std::ranges::find(names, name) != names.end();
}

const AttemptState* find_attempt(const RunListing& listing, const AttemptName& name) {
  const auto found = std::ranges::find(listing.attempts, name, &AttemptState::name);
  return found == listing.attempts.end() ? nullptr : &*found;
}

const GenerationRecord* find_claim(const RunListing& listing, std::uint64_t generation) {
  for (const Claim& claim : listing.claims) {
    if (claim.generation == generation && claim.record) return &*claim.record;
  }
  return nullptr;
}

Broken check_run(const Found& found) {
  if (!found.promises.run_id) return {};
  if (found.listing.run.run_id != *found.promises.run_id) return "run: another run id";
  if (found.promises.run_file && found.listing.run_rebuilt) return "run: its file is lost";
  return {};
}

Broken check_claims(const Found& found) {
  for (const GenerationRecord& claim : found.promises.claims) {
    const GenerationRecord* record = find_claim(found.listing, claim.generation);
    if (record == nullptr || *record != claim) {
      return fmt::format("claim: that of generation {} is lost", claim.generation);
    }
  }
  for (const Manifest& manifest : newest_first(found.listing)) {
    if (find_claim(found.listing, manifest.point.generation) == nullptr) {
      return fmt::format("claim: generation {} was committed without", manifest.point.generation);
    }
  }
  return {};
}

Broken check_listed(const Found& found) {
  for (const AttemptState& attempt : found.listing.attempts) {
    if (attempt.fault) return "listed: " + attempt.fault->message();
    if (!attempt.committed()) continue;
    const Status verified = verify_attempt(found.disk, *attempt.manifest);
    if (!verified) return "listed: " + verified.error().message();
  }
  for (const Claim& claim : found.listing.claims) {
    if (!claim.record) return fmt::format("listed: claim {} is torn", claim.generation);
  }
  return {};
}

Broken check_acknowledged(const Found& found) {
  const auto listed = newest_first(found.listing);
  for (const Point& point : found.promises.committed) {
    if (listed.empty() || older(listed.front().point, point)) {
      return fmt::format("acked: nothing as new as step {} is there", point.step);
    }
    if (contains(found.promises.removing, name_of(point))) continue;
    const AttemptState* attempt = find_attempt(found.listing, name_of(point));
    if (attempt == nullptr || !attempt->committed()) {
      return fmt::format("acked: step {} is lost", point.step);
    }
  }
  return {};
}

double loss_of(const Manifest& manifest) { return manifest.annotations.metrics.at("loss"); }

// Whatever went, nothing that was acknowledged was better than the best that is there.
Broken check_best(const Found& found) {
  if (!found.promises.keeps_best || found.promises.committed.empty()) return {};
  const auto listed = newest_first(found.listing);
  const auto best = std::ranges::min_element(listed, {}, loss_of);
  for (const Point& point : found.promises.committed) {
    const double loss = make_loss(point.step);
    if (best == listed.end() || loss_of(*best) > loss) {
      return fmt::format("best: step {} is lost, and all that are left are worse", point.step);
    }
  }
  return {};
}

// Old data at the place of a header that was never written can be a header too: an older file's.
bool is_of(const PartHeader& part, const std::string& path) {
  const Identity& identity = part.header.identity;
  return path == join_name(attempt_dir_name(name_of(identity)), part_file_name(identity.part));
}

// Over all files, whatever their attempt's state.
Broken check_data(SimDisk& disk) {
  for (const std::string& path : disk.list_all()) {
    const bool is_sealed = path.ends_with(".safetensors");
    if (!is_sealed && !path.ends_with(".part")) continue;
    const auto part = read_part_header(disk, path);
    if (!part || (!is_sealed && !is_of(*part, path))) continue;
    const Status verified = verify_part(disk, path);
    if (!verified) return "data: " + verified.error().message();
  }
  return {};
}

Broken check_sealed(const Found& found) {
  for (const Identity& identity : found.promises.sealed) {
    const AttemptName name{identity.step, identity.attempt_id};
    if (contains(found.promises.removing, name)) continue;
    const std::string path = attempt_dir_name(name) + "/" + sealed_file_name(identity.part);
    const Status verified = verify_part(found.disk, path);
    if (!verified) return "sealed: " + verified.error().message();
  }
  return {};
}

bool has_parts(const std::vector<std::string>& names, const std::string& directory) {
  return std::ranges::any_of(
      names, [&](const std::string& name) { return name.starts_with(directory + "/rank-"); });
}

Broken check_removed(const Found& found) {
  const auto names = found.disk.list_all();
  for (const AttemptName& name : found.promises.removed) {
    const std::string directory = attempt_dir_name(name) + "/";
    if (std::ranges::find(names, directory) != names.end()) {
      return "removed: " + directory + " is back";
    }
  }
  for (const AttemptName& name : found.promises.removing) {
    const AttemptState* attempt = find_attempt(found.listing, name);
    if (attempt == nullptr || !attempt->undecided()) continue;
    if (has_parts(names, attempt_dir_name(name))) {
      return "removed: " + attempt_dir_name(name) + " is undecided";
    }
  }
  return {};
}

Broken check_aborted(const Found& found) {
  const auto names = found.disk.list_all();
  for (const AttemptName& name : found.promises.aborted) {
    const AttemptState* attempt = find_attempt(found.listing, name);
    if (attempt == nullptr) continue;
    const bool has_data = has_parts(names, attempt_dir_name(name));
    if (attempt->undecided() && !has_data && contains(found.promises.removing, name)) continue;
    if (attempt->undecided() || attempt->committed()) {
      return "aborted: " + attempt_dir_name(name) + " can be committed again";
    }
  }
  return {};
}

Broken check_in_doubt(const Found& found) {
  for (const AttemptName& name : found.promises.in_doubt) {
    const AttemptState* attempt = find_attempt(found.listing, name);
    if (attempt == nullptr || contains(found.promises.answered, name)) continue;
    if (attempt->undecided() && (attempt->doubt || !attempt->has_sealed)) continue;
    return "doubt: " + attempt_dir_name(name) + " has an outcome, or could get one here";
  }
  return {};
}

Result<RunListing> live_on(SimDisk& disk) {
  DF_TRY(const RunRecord run, create_or_open_run(disk, {}));
  DF_TRY(const RunListing before, read_run(disk));
  const auto committed = newest_first(before);
  const auto from = committed.empty() ? std::nullopt : std::optional(committed.front().point);
  DF_TRY(const GenerationRecord claim, claim_generation(disk, run.run_id, from));
  DF_TRY_VOID(abort_undecided(disk, before, claim.generation));
  const Point next{claim.generation, 1000, 1000, 1000};
  DF_TRY_VOID(save_attempt(disk, make_identity(run.run_id, next)));
  // A process that could not read the checkpoints before it has begun a line beside them.
  DF_TRY_VOID(
      collect_garbage(disk, {.last = 1, .every = {}, .best = {}}, {.earlier = EarlierLines::kGo}));
  return read_run(disk);
}

}  // namespace

std::optional<std::string> broken_invariant(SimDisk& disk, const Promises& promises) {
  const auto listing = read_run(disk);
  if (!listing) {
    const bool nothing_yet = !promises.run_id && listing.error().code() == ErrorCode::kNotFound;
    if (nothing_yet) return {};
    return "run: " + listing.error().message();
  }
  const Found found{disk, promises, *listing};
  if (auto broken = check_run(found)) return broken;
  if (auto broken = check_claims(found)) return broken;
  if (auto broken = check_listed(found)) return broken;
  if (auto broken = check_acknowledged(found)) return broken;
  if (auto broken = check_best(found)) return broken;
  if (auto broken = check_data(disk)) return broken;
  if (auto broken = check_sealed(found)) return broken;
  if (auto broken = check_removed(found)) return broken;
  if (auto broken = check_in_doubt(found)) return broken;
  return check_aborted(found);
}

std::optional<std::string> broken_future(SimDisk& disk, const Promises& promises) {
  const auto after = live_on(disk);
  if (!after) return "next: " + after.error().message();
  if (promises.run_id && after->run.run_id != *promises.run_id) return "next: another run id";
  if (after->attempts.size() != 1 || !after->half_deleted.empty()) return "next: debris";
  const AttemptState& attempt = after->attempts.front();
  if (!attempt.committed() || attempt.name.step != 1000) return "next: the new step is not listed";
  const Status verified = verify_attempt(disk, *attempt.manifest);
  if (!verified) return "next: " + verified.error().message();
  return {};
}

}  // namespace deepfreeze

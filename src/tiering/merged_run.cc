#include "tiering/merged_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "base/try.h"
#include "format/names.h"
#include "storage/vfs_tier_store.h"

namespace deepfreeze {
namespace {

void add_attempt(RunListing& all, const AttemptState& attempt) {
  const auto known = std::ranges::find(all.attempts, attempt.name, &AttemptState::name);
  if (known == all.attempts.end()) {
    all.attempts.push_back(attempt);
  } else if (!known->committed() && attempt.committed()) {
    *known = attempt;
  }
}

void add_claim(RunListing& all, const Claim& claim) {
  const auto known = std::ranges::find(all.claims, claim.generation, &Claim::generation);
  if (known == all.claims.end()) {
    all.claims.push_back(claim);
  } else if (!known->record) {
    known->record = claim.record;
  }
}

// Another rank may be faster; it takes the same.
Status take(const std::string& name, const std::string& text, Vfs& near) {
  VfsTierStore store(near);
  const Status put = put_text(store, name, text);
  if (!put && put.error().code() != ErrorCode::kExists) return put;
  return store.settle("");
}

Status take_claim(const RunListing& here, const Claim& claim, Vfs& near, Vfs& far) {
  const auto own = std::ranges::find(here.claims, claim.generation, &Claim::generation);
  const std::string name = generation_file_name(claim.generation);
  if (own != here.claims.end()) {
    if (!own->record || !claim.record || *own->record == *claim.record) return {};
    return fail(ErrorCode::kMismatch,
                fmt::format("two processes have claimed generation {} of run {}, in {} and in {}. "
                            "Open one of the two by its own path, with a new first directory",
                            claim.generation, here.run.run_id, near.path_of(""), far.path_of("")));
  }
  DF_TRY(const std::string text, read_file(far, name, kRecordBytesMax));
  return take(name, text, near);
}

}  // namespace

RunListing merge(std::span<const RunListing> listings) {
  RunListing all = listings.front();
  for (const RunListing& listing : listings.subspan(1)) {
    for (const AttemptState& attempt : listing.attempts) add_attempt(all, attempt);
    for (const Claim& claim : listing.claims) add_claim(all, claim);
  }
  std::ranges::sort(all.attempts, {}, [](const AttemptState& attempt) {
    return std::tuple(attempt.name.step, attempt.name.attempt_id);
  });
  std::ranges::sort(all.claims, {}, &Claim::generation);
  return all;
}

// The newest claim first and the run's record last: in between, nobody takes the directory for a
// run that lacks claims.
Status adopt_history(Vfs& near, Vfs& far) {
  const auto there = read_run(far);
  if (!there && there.error().code() == ErrorCode::kNotFound) return {};
  if (!there) return std::unexpected(there.error());
  auto here = read_run(near);
  const bool is_new = !here && here.error().code() == ErrorCode::kNotFound;
  if (is_new)
    here = RunListing{.run = there->run, .attempts = {}, .half_deleted = {}, .claims = {}};
  if (!here) return std::unexpected(here.error());
  if (here->run.run_id != there->run.run_id) {
    return fail(
        ErrorCode::kMismatch,
        fmt::format("{} holds run {}, and its tier {} holds run {}: each run needs tiers of "
                    "its own",
                    near.path_of(""), here->run.run_id, far.path_of(""), there->run.run_id));
  }
  for (auto claim = there->claims.rbegin(); claim != there->claims.rend(); ++claim) {
    DF_TRY_VOID(take_claim(*here, *claim, near, far));
  }
  return is_new ? take(std::string(kRunFile), encode_run(there->run), near) : Status{};
}

}  // namespace deepfreeze

#include "nodes/answered.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "base/log.h"
#include "base/try.h"
#include "manifest/claims.h"
#include "manifest/commit.h"
#include "manifest/run_directory.h"
#include "manifest/sealed_parts.h"
#include "manifest/several_ranks.h"

namespace deepfreeze {
namespace {

Point point_in(const Identity& identity) {
  return {.generation = identity.generation,
          .step = identity.step,
          .save_index = identity.save_index,
          .attempt_id = identity.attempt_id};
}

// The manifest lists the files of this node as they were reported, and no others of its ranks.
bool lists_own(const Ledger& ledger, const Manifest& manifest, std::vector<ManifestFile> own) {
  std::vector<ManifestFile> listed;
  for (const ManifestFile& file : manifest.files) {
    const auto name = parse_sealed_file_name(file.name);
    if (!name || name->rank >= ledger.nodes().world_size()) return false;
    if (ledger.nodes().leader_of(name->rank) == ledger.own()) listed.push_back(file);
  }
  std::ranges::sort(listed, {}, &ManifestFile::name);
  std::ranges::sort(own, {}, &ManifestFile::name);
  return !own.empty() && listed == own;
}

Result<DecidedOutcome> verified(const Leader& leader, const OwnReport& report, std::string text) {
  DF_TRY(Manifest manifest, decode_manifest(text));
  const bool is_aborted = manifest.outcome == Outcome::kAborted;
  if (manifest.run_id != report.identity.run_id ||
      AttemptName{manifest.point.step, manifest.point.attempt_id} != attempt_of(report.identity) ||
      (!is_aborted && (manifest.point != point_in(report.identity) ||
                       manifest.world_size != report.identity.part.world_size))) {
    return fail(ErrorCode::kMismatch, "it is of another attempt");
  }
  if (is_aborted) return DecidedOutcome{std::move(manifest), std::move(text), {}};
  if (!lists_own(leader.ledger, manifest, report.files)) {
    return fail(ErrorCode::kMismatch, "it does not list this node's files as they were reported");
  }
  return DecidedOutcome{std::move(manifest), std::move(text), report.files};
}

Result<Manifest> place(const Leader& leader, const DecidedOutcome& decided) {
  const Status placed = place_decided(leader.vfs, decided);
  // An aborted attempt may be gone already: nothing of it can count any more.
  const bool is_over = decided.manifest.outcome == Outcome::kAborted && !placed &&
                       placed.error().code() == ErrorCode::kNotFound;
  if (!placed && !is_over) return std::unexpected(placed.error());
  return decided.manifest;
}

// Rank 0's directory has had the attempt, under this very claim, and has nothing of it any more: it
// was aborted, or deleted by the rules.
Result<Manifest> abort_and_remove(const Leader& leader, const Identity& identity) {
  DF_TRY(const ClaimView view, look_at_claim(leader.vfs, leader.claim));
  if (!view.stands || identity.generation != leader.claim.generation) {
    return fail(ErrorCode::kFenced, "rank 0 has nothing of it, and the claim is not this node's");
  }
  const AttemptName name = attempt_of(identity);
  give_attempt_up(leader.vfs, identity);
  const auto outcome = read_manifest(leader.vfs, name, identity.run_id);
  if (!outcome && outcome.error().code() != ErrorCode::kNotFound) return outcome;
  if (outcome && outcome->outcome == Outcome::kCommitted) return outcome;
  DF_TRY_VOID(remove_attempt(leader.vfs, name));
  Manifest aborted;
  aborted.outcome = Outcome::kAborted;
  return aborted;
}

std::string directory_of(const LinkAttempt& attempt) {
  return attempt_dir_name({attempt.step, attempt.attempt_id});
}

// Ends the attempt unless its outcome could not be placed.
Result<Manifest> conclusion(const Leader& leader, const LinkAttempt& attempt,
                            const std::optional<Error>& reported, Result<Manifest> outcome) {
  if (!outcome) {
    return fail(ErrorCode::kIo,
                fmt::format("outcome unknown: place that of {}: {}", directory_of(attempt),
                            outcome.error().message()),
                outcome.error().os_errno());
  }
  leader.ledger.end(attempt);
  if (outcome->outcome == Outcome::kCommitted) return outcome;
  return fail(ErrorCode::kCancelled,
              fmt::format("{} has been given up{}", directory_of(attempt),
                          reported ? ": " + reported->message() : " by rank 0"));
}

}  // namespace

LinkAttempt link_attempt(const Identity& identity) {
  return {.step = identity.step, .attempt_id = identity.attempt_id};
}

std::optional<Result<Manifest>> take_answer(const Leader& leader, const LinkAttempt& attempt) {
  NodeAnswer answer = leader.ledger.answer(attempt);
  if (!answer.decided && !answer.is_gone) return std::nullopt;
  const OwnReport report = leader.ledger.report(attempt);
  const auto failure = reported_failure(leader.vfs, attempt_of(report.identity));
  if (!answer.decided) {
    return conclusion(leader, attempt, failure, abort_and_remove(leader, report.identity));
  }
  const auto decided = verified(leader, report, *std::move(answer.decided));
  if (decided) return conclusion(leader, attempt, failure, place(leader, *decided));
  log_warning(
      fmt::format("rank 0's outcome of {}: {}", directory_of(attempt), decided.error().message()));
  leader.ledger.drop_answer(attempt);
  return std::nullopt;
}

void ask_about_doubts(const Leader& leader) {
  for (const LinkAttempt& attempt : leader.ledger.doubts()) {
    std::ignore = leader.mail.send(0, LinkAsk{attempt});  // else the next time
  }
}

void settle_doubts(const Leader& leader) {
  for (const LinkAttempt& attempt : leader.ledger.doubts()) {
    const auto settled = take_answer(leader, attempt);
    if (settled && !*settled && settled->error().code() != ErrorCode::kCancelled) {
      log_warning(settled->error().message());
    }
  }
}

}  // namespace deepfreeze

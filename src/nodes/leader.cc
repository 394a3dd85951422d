#include "nodes/leader.h"

#include <algorithm>
#include <tuple>

#include "base/try.h"
#include "manifest/claims.h"
#include "manifest/record_file.h"
#include "manifest/run_directory.h"

namespace deepfreeze {
namespace {

bool has_claim_in_place(const Leader& leader) {
  const auto in_place = leader.vfs.is_in_place();
  if (!in_place || !*in_place) return false;
  const auto view = look_at_claim(leader.vfs, leader.claim);
  return view && view->stands;
}

Result<std::string> durable_outcome(const Leader& leader, const AttemptName& name) {
  DF_TRY(const Manifest manifest, read_manifest(leader.vfs, name, leader.claim.run_id));
  // N6: the process that placed it may have died before its sync. No cut may take back an outcome
  // that other nodes have.
  DF_TRY_VOID(leader.vfs.sync_dir(attempt_dir_name(name)));
  return encode_manifest(manifest);
}

LinkMessage answer(const Leader& leader, const LinkAttempt& attempt) {
  if (leader.ledger.is_open(attempt)) return LinkUnknown{attempt};
  return outcome_on_disk(leader, attempt);
}

std::optional<LinkAttempt> asked_about(const LinkMessage& message) {
  if (const auto* ask = std::get_if<LinkAsk>(&message)) return ask->attempt;
  if (const auto* sealed = std::get_if<LinkSealed>(&message)) return sealed->attempt;
  if (const auto* failed = std::get_if<LinkFailed>(&message)) return failed->attempt;
  return std::nullopt;
}

void note_letter(const Leader& leader, Letter letter) {
  const std::uint32_t sender = letter.rank;
  const auto attempt = letter.message ? asked_about(*letter.message) : std::nullopt;
  if (!leader.ledger.note(std::move(letter)) || !attempt) return;
  std::ignore = leader.mail.send(sender, answer(leader, *attempt));  // else it asks again
}

}  // namespace

bool take_letters(const Leader& leader, std::chrono::milliseconds timeout) {
  for (int count = 0; count < kLettersAtOnceMax; ++count) {
    auto letter = leader.mail.take(count == 0 ? timeout : std::chrono::milliseconds(0));
    if (letter) {
      note_letter(leader, *std::move(letter));
      continue;
    }
    return letter.error().code() == ErrorCode::kTimeout;
  }
  return true;
}

LinkMessage outcome_on_disk(const Leader& leader, const LinkAttempt& attempt) {
  const AttemptName name{attempt.step, attempt.attempt_id};
  const auto entries = leader.vfs.list(attempt_dir_name(name));
  if (!entries) {
    const bool is_gone =
        entries.error().code() == ErrorCode::kNotFound && has_claim_in_place(leader);
    return is_gone ? LinkMessage(LinkGone{attempt}) : LinkMessage(LinkUnknown{attempt});
  }
  if (!has_name(*entries, kManifestFile)) return LinkUnknown{attempt};
  auto outcome = durable_outcome(leader, name);
  if (!outcome) return LinkUnknown{attempt};
  return LinkDecided{.attempt = attempt, .manifest = *std::move(outcome)};
}

}  // namespace deepfreeze

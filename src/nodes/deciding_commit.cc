#include "nodes/deciding_commit.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/try.h"
#include "manifest/record_file.h"
#include "manifest/sealed_parts.h"
#include "nodes/answered.h"

namespace deepfreeze {

DecidingCommit::DecidingCommit(const Leader& leader, NodeSave save)
    : leader_(leader),
      save_(std::move(save)),
      attempt_(link_attempt(save_.identity)),
      ranks_(leader.ledger.nodes().ranks_with(leader.ledger.own())),
      request_{.identity = save_.identity,
               .world_size = save_.identity.part.world_size,
               .deadline = std::chrono::milliseconds(0),  // each look is one
               .own = {}} {
  leader_.ledger.begin(attempt_);
}

DecidingCommit::~DecidingCommit() { leader_.ledger.end(attempt_); }

std::optional<Result<Manifest>> DecidingCommit::advance() {
  if (const auto failed = failure()) return conclude(std::unexpected(*failed));
  const auto own = own_parts();
  if (!own) {
    missing_ = own.error();
    const bool is_missing = own.error().code() == ErrorCode::kIncomplete &&
                            !reported_failure(leader_.vfs, attempt_of(save_.identity));
    if (is_missing) return std::nullopt;
    return conclude(std::unexpected(own.error()));
  }
  missing_.reset();
  if (leader_.ledger.awaited(attempt_)) return std::nullopt;
  return conclude(check(*own));
}

Result<Manifest> DecidingCommit::time_out() {
  const auto wait = nanos_since(begun_) / 1'000'000;
  if (missing_) {
    return conclude(
        fail(missing_->code(), fmt::format("{} after {} ms", missing_->message(), wait)));
  }
  return conclude(fail(ErrorCode::kIncomplete,
                       fmt::format("the node of rank {} has not reported its parts after {} ms",
                                   leader_.ledger.awaited(attempt_).value_or(0), wait)));
}

std::optional<Error> DecidingCommit::failure() const {
  return save_.failure ? save_.failure : leader_.ledger.failure(attempt_);
}

Result<std::vector<PartName>> DecidingCommit::own_parts() {
  return wait_for_parts(leader_.vfs, request_, ranks_);
}

// N4: step 5 on the headers of all nodes.
Result<CheckedParts> DecidingCommit::check(const std::vector<PartName>& own) {
  std::vector<SealedPart> parts = leader_.ledger.take_parts(attempt_);
  const std::string directory = attempt_dir_name(attempt_of(save_.identity));
  for (const PartName& name : own) {
    const std::string path = join_name(directory, sealed_file_name(name));
    DF_TRY(const HeaderBytes header, read_header_bytes(leader_.vfs, path));
    auto part = sealed_part(name, header.bytes, header.file_bytes);
    if (!part) return std::unexpected(part.error().within("check " + leader_.vfs.path_of(path)));
    here_.push_back({sealed_file_name(name), part->header.file_bytes, part->header.crc});
    parts.push_back(*std::move(part));
  }
  std::ranges::sort(
      parts, {}, [](const SealedPart& part) { return std::pair(part.name.rank, part.name.file); });
  PartsCheck check(save_.identity);
  for (const SealedPart& part : parts) {
    const Status added = check.add(part.name, part.header);
    if (!added)
      return std::unexpected(added.error().within("check " + sealed_file_name(part.name)));
  }
  return check.finish();
}

// N5 and N6, or giving up. Nobody hears of an outcome that is not durable.
Result<Manifest> DecidingCommit::conclude(Result<CheckedParts> checked) {
  auto outcome = conclude_attempt(leader_.vfs, request_, std::move(checked), here_);
  if (outcome) {
    tell_all(LinkDecided{.attempt = attempt_, .manifest = encode_manifest(*outcome)});
  } else {
    tell_all(outcome_on_disk(leader_, attempt_));
  }
  return outcome;
}

// A leader that does not get it reports again, or asks.
void DecidingCommit::tell_all(const LinkMessage& outcome) {
  if (std::holds_alternative<LinkUnknown>(outcome)) return;
  for (const std::uint32_t leader : leader_.ledger.nodes().leaders()) {
    if (leader != leader_.ledger.own()) std::ignore = leader_.mail.send(leader, outcome);
  }
}

}  // namespace deepfreeze

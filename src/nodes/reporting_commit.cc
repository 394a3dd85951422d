#include "nodes/reporting_commit.h"

#include <fmt/format.h>

#include <tuple>
#include <utility>

#include "base/try.h"
#include "manifest/claims.h"
#include "manifest/record_file.h"
#include "manifest/sealed_parts.h"
#include "manifest/several_ranks.h"
#include "nodes/answered.h"

namespace deepfreeze {

ReportingCommit::ReportingCommit(const Leader& leader, NodeSave save)
    : leader_(leader),
      save_(std::move(save)),
      attempt_(link_attempt(save_.identity)),
      ranks_(leader.ledger.nodes().ranks_with(leader.ledger.own())),
      request_{.identity = save_.identity,
               .world_size = save_.identity.part.world_size,
               .deadline = std::chrono::milliseconds(0),  // each look is one
               .own = {}},
      renewals_(leader.ledger.renewals(0)),
      failure_(save_.failure) {
  leader_.ledger.begin(attempt_);
  // A commit before this one, which ended by an exception, may have reported the node's files.
  const OwnReport known = leader_.ledger.report(attempt_);
  leader_.ledger.set_report(attempt_, {.identity = save_.identity, .files = known.files});
}

ReportingCommit::~ReportingCommit() { leader_.ledger.doubt(attempt_); }

std::optional<Result<Manifest>> ReportingCommit::advance() {
  if (auto answered = take_answer(leader_, attempt_)) return with_own_failure(*std::move(answered));
  // First: if the disk refused the attempt's directory, its absence is no outcome.
  if (failure_ && sent_ == 0 && !send_report()) return std::nullopt;
  if (auto outcome = outcome_here()) return outcome;
  if (const auto renewals = leader_.ledger.renewals(0); renewals != renewals_) {
    renewals_ = renewals;
    sent_ = 0;
  }
  if (files_.empty() && !failure_) find_parts();
  if (files_.empty() && !failure_) return std::nullopt;
  std::ignore = send_report();  // else it is tried again
  return std::nullopt;
}

// The other ranks are told that the attempt is aborted; this one knows that it has lost the run.
Result<Manifest> ReportingCommit::with_own_failure(Result<Manifest> answered) const {
  const bool is_aborted = !answered && answered.error().code() == ErrorCode::kCancelled;
  const bool is_fenced = failure_ && failure_->code() == ErrorCode::kFenced;
  if (is_aborted && is_fenced) return std::unexpected(*failure_);
  return answered;
}

Result<Manifest> ReportingCommit::time_out() {
  return fail(
      ErrorCode::kTimeout,
      fmt::format("outcome unknown: rank 0 has told none of {} within {} ms",
                  attempt_dir_name(attempt_of(save_.identity)), nanos_since(begun_) / 1'000'000));
}

// An heir of this process may have placed one, or the next job.
std::optional<Result<Manifest>> ReportingCommit::outcome_here() {
  auto outcome = await_outcome(leader_.vfs, save_.identity, std::chrono::milliseconds(0));
  if (!outcome && outcome.error().code() == ErrorCode::kTimeout) return std::nullopt;
  if (outcome || outcome.error().code() == ErrorCode::kCancelled) leader_.ledger.end(attempt_);
  return outcome;
}

// N2. A failure is rank 0's to decide about.
void ReportingCommit::find_parts() {
  const auto parts = wait_for_parts(leader_.vfs, request_, ranks_);
  const Status prepared = parts ? prepare(*parts) : std::unexpected(parts.error());
  if (prepared) return;
  files_.clear();
  if (!parts && parts.error().code() == ErrorCode::kExists) return;  // the next look takes it
  const bool is_missing = !parts && parts.error().code() == ErrorCode::kIncomplete &&
                          !reported_failure(leader_.vfs, attempt_of(save_.identity));
  if (!is_missing) failure_ = prepared.error();
}

Status ReportingCommit::prepare(const std::vector<PartName>& parts) {
  const std::string directory = attempt_dir_name(attempt_of(save_.identity));
  for (const PartName& name : parts) {
    const std::string path = join_name(directory, sealed_file_name(name));
    DF_TRY(const PartHeader part, read_part_header(leader_.vfs, path));
    Identity expected = save_.identity;
    expected.part = name;
    if (part.header.identity != expected) {
      return fail(ErrorCode::kMismatch, leader_.vfs.path_of(path) + " is of another attempt");
    }
    files_.push_back({sealed_file_name(name), part.file_bytes, part.crc});
  }
  // Another rank's name may be seen before that rank has synced it; a cut would then take a file
  // away that rank 0 vouches for.
  return leader_.vfs.sync_dir(directory);
}

// N3, right before the first message: from then on the attempt is in doubt.
Status ReportingCommit::check_may_report() {
  DF_TRY_VOID(check_not_fenced(leader_.vfs, leader_.claim.generation));
  DF_TRY(const ClaimView view, look_at_claim(leader_.vfs, leader_.claim));
  if (!view.stands) {
    return fail(ErrorCode::kNotFound, leader_.vfs.path_of("") + " has lost this job's claim");
  }
  const auto parts = wait_for_parts(leader_.vfs, request_, ranks_);
  return parts ? Status{} : std::unexpected(parts.error());
}

Status ReportingCommit::send_report() {
  if (!failure_ && !has_reported_) {
    const Status may = check_may_report();
    const ErrorCode code = may ? ErrorCode::kInternal : may.error().code();
    // An outcome that has come meanwhile is taken by the next look.
    if (code == ErrorCode::kExists) return may;
    if (!may) failure_ = may.error();
  }
  if (failure_) {
    if (sent_ > 0) return {};
    DF_TRY_VOID(leader_.mail.send(0, LinkFailed{.attempt = attempt_, .error = *failure_}));
    sent_ = 1;
    return {};
  }
  has_reported_ = true;
  leader_.ledger.set_report(attempt_, {.identity = save_.identity, .files = files_});
  for (; sent_ < files_.size(); ++sent_) DF_TRY_VOID(send_part(files_[sent_]));
  if (sent_ > files_.size()) return {};
  LinkSealed sealed{.attempt = attempt_, .files = {}};
  for (const ManifestFile& file : files_) sealed.files.push_back({file.name, file.header_crc});
  DF_TRY_VOID(leader_.mail.send(0, sealed));
  ++sent_;
  return {};
}

// Its bytes are read again each time, since headers are long: nothing keeps them.
Status ReportingCommit::send_part(const ManifestFile& file) {
  const std::string path = join_name(attempt_dir_name(attempt_of(save_.identity)), file.name);
  DF_TRY(const HeaderBytes header, read_header_bytes(leader_.vfs, path));
  const auto* text = reinterpret_cast<const char*>(header.bytes.data());
  return leader_.mail.send(0, LinkPart{.attempt = attempt_,
                                       .file = file.name,
                                       .bytes = header.file_bytes,
                                       .header = std::string(text, header.bytes.size())});
}

}  // namespace deepfreeze

#include "manifest/run_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/clock.h"
#include "base/hex.h"
#include "base/log.h"
#include "base/random_id.h"
#include "base/try.h"
#include "manifest/record_file.h"
#include "storage/os_error.h"

namespace deepfreeze {
namespace {

constexpr RecordFailPoints kRunFailPoints = {"run.written", "run.renamed", "run.synced"};

using Votes = std::map<std::string, std::size_t>;

std::optional<std::string> most_votes(const Votes& votes) {
  if (votes.empty()) return std::nullopt;
  return std::ranges::max_element(votes, {}, &Votes::value_type::second)->first;
}

std::optional<std::string> elect_run_id(const RunRecords& records) {
  Votes manifests;
  for (const AttemptState& attempt : records.attempts) {
    if (attempt.manifest) ++manifests[attempt.manifest->run_id];
  }
  if (!manifests.empty()) return most_votes(manifests);
  Votes claims;
  for (const Claim& claim : records.claims) {
    if (claim.record) ++claims[claim.record->run_id];
  }
  return most_votes(claims);
}

RunRecord new_run(std::optional<ParentPoint> parent) {
  return {.run_id = hex64(random_id()), .parent = std::move(parent), .wall_micros = wall_micros()};
}

// The bad file stays for inspection; kNotFound means that another process moved it first.
Status move_bad_file_aside(Vfs& vfs, const Error& cause) {
  const std::string aside = fmt::format("deepfreeze.bad-{}.json", hex64(random_id()));
  const Status moved = vfs.rename_no_replace(kRunFile, aside);
  if (!moved && moved.error().code() != ErrorCode::kNotFound) return moved;
  log_warning(fmt::format("{}: written anew, the bad file is kept as {}", cause.message(), aside));
  return {};
}

Result<RunRecord> write_run_file(Vfs& vfs, const RunRecord& record) {
  const Status placed = place_record(
      vfs, {.directory = "", .name = kRunFile, .text = encode_run(record)}, kRunFailPoints);
  if (!placed && placed.error().code() != ErrorCode::kExists) {
    return std::unexpected(placed.error());
  }
  DF_TRY_VOID(settle_record(vfs, "", kRunFailPoints));
  if (!placed) return read_run_file(vfs);  // another process was faster: it is the same run
  return record;
}

}  // namespace

Result<RunRecord> read_run_file(Vfs& vfs) {
  DF_TRY(const std::string text, read_file(vfs, kRunFile, kRecordBytesMax));
  auto record = decode_run(text);
  if (!record) return std::unexpected(record.error().within(vfs.path_of(kRunFile)));
  return record;
}

std::optional<RunRecord> rebuild_run(const RunRecords& records) {
  auto run_id = elect_run_id(records);
  if (!run_id) return std::nullopt;
  RunRecord run{.run_id = std::move(*run_id), .parent = {}, .wall_micros = 0};
  for (const AttemptState& attempt : records.attempts) {
    if (!attempt.manifest || attempt.manifest->run_id != run.run_id) continue;
    if (!attempt.committed()) continue;  // an aborted one may know nothing of the parent
    run.parent = attempt.manifest->annotations.parent;
    run.wall_micros = attempt.manifest->annotations.wall_micros;
    break;
  }
  return run;
}

Result<RunRecord> repair_run_file(Vfs& vfs, const RunRecord& rebuilt) {
  auto found = read_run_file(vfs);
  if (found) return found;
  const ErrorCode cause = found.error().code();
  if (cause != ErrorCode::kNotFound && cause != ErrorCode::kCorrupt) return found;
  if (cause == ErrorCode::kCorrupt) DF_TRY_VOID(move_bad_file_aside(vfs, found.error()));
  return write_run_file(vfs, rebuilt);
}

Result<RunRecord> create_or_open_run(Vfs& vfs, std::optional<ParentPoint> parent) {
  auto found = read_run_file(vfs);
  if (found || found.error().code() == ErrorCode::kUnsupported) return found;
  if (is_refusal(found.error())) return found;  // it may be whole
  DF_TRY(const RunRecords records, read_records(vfs));
  auto rebuilt = rebuild_run(records);
  const ErrorCode cause = found.error().code();
  // A record that the disk cannot read is not lost: only one rebuilt from other records may replace
  // it.
  if (!rebuilt && cause != ErrorCode::kNotFound && cause != ErrorCode::kCorrupt) return found;
  const bool is_told = std::ranges::any_of(records.attempts, &AttemptState::committed);
  if (rebuilt && !is_told) rebuilt->parent = parent;
  if (cause != ErrorCode::kNotFound) DF_TRY_VOID(move_bad_file_aside(vfs, found.error()));
  return write_run_file(vfs, rebuilt ? *rebuilt : new_run(std::move(parent)));
}

}  // namespace deepfreeze

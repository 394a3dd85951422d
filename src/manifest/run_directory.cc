#include "manifest/run_directory.h"

#include <fmt/format.h>

#include "base/log.h"
#include "base/try.h"
#include "manifest/in_doubt.h"
#include "manifest/record_file.h"
#include "manifest/run_file.h"
#include "manifest/run_records.h"

namespace deepfreeze {
namespace {

std::string describe(const AttemptName& name) {
  return fmt::format("{}/{}", attempt_dir_name(name), kManifestFile);
}

Status check_belongs(const Manifest& manifest, const AttemptName& name, std::string_view run_id) {
  const Point& point = manifest.point;
  if (point.step != name.step || point.attempt_id != name.attempt_id) {
    return fail(ErrorCode::kCorrupt, fmt::format("it is of attempt {}",
                                                 attempt_dir_name({point.step, point.attempt_id})));
  }
  if (!run_id.empty() && manifest.run_id != run_id) {
    return fail(ErrorCode::kCorrupt,
                fmt::format("it is of run {}, not {}", manifest.run_id, run_id));
  }
  return {};
}

Result<RunRecord> rebuild_or_explain(const Vfs& vfs, const RunRecords& records,
                                     const Error& cause) {
  if (auto rebuilt = rebuild_run(records)) {
    log_warning(fmt::format("{}: run {} is rebuilt from its other records", cause.message(),
                            rebuilt->run_id));
    return std::move(*rebuilt);
  }
  if (cause.code() != ErrorCode::kNotFound) return std::unexpected(cause);
  if (records.attempts.empty() && records.claims.empty() && records.half_deleted.empty()) {
    return fail(ErrorCode::kNotFound, "not a DeepFreeze run directory: " + vfs.path_of(""));
  }
  return fail(ErrorCode::kCorrupt,
              cause.message() + ", and no other record tells which run this is");
}

// Records of another run were copied here: they are no part of this one.
void mark_foreign(Vfs& vfs, RunListing& listing) {
  for (AttemptState& attempt : listing.attempts) {
    if (!attempt.manifest) continue;
    const Status own = check_belongs(*attempt.manifest, attempt.name, listing.run.run_id);
    if (own) continue;
    attempt.fault = own.error().within("read " + vfs.path_of(describe(attempt.name)));
    attempt.manifest.reset();
  }
  for (Claim& claim : listing.claims) {
    if (claim.record && claim.record->run_id != listing.run.run_id) claim.record.reset();
  }
}

void mark_in_doubt(Vfs& vfs, RunListing& listing) {
  for (AttemptState& attempt : listing.attempts) {
    if (!attempt.undecided() || !attempt.has_sealed) continue;
    auto doubt = find_doubt(vfs, {listing.claims, listing.node}, attempt.name);
    attempt.doubt = doubt ? std::move(*doubt) : std::optional(Doubt{});
  }
}

}  // namespace

Result<RunListing> read_run(Vfs& vfs) {
  auto run = read_run_file(vfs);
  const bool lost = !run.has_value();
  if (lost && run.error().code() == ErrorCode::kUnsupported) {
    return std::unexpected(std::move(run).error());
  }
  DF_TRY(RunRecords records, read_records(vfs));
  if (lost) run = rebuild_or_explain(vfs, records, run.error());
  if (!run) return std::unexpected(std::move(run).error());
  RunListing listing{.run = std::move(*run),
                     .run_rebuilt = lost,
                     .attempts = std::move(records.attempts),
                     .half_deleted = std::move(records.half_deleted),
                     .claims = std::move(records.claims),
                     .node = std::move(records.node)};
  mark_foreign(vfs, listing);
  mark_in_doubt(vfs, listing);
  return listing;
}

Result<Manifest> read_manifest(Vfs& vfs, const AttemptName& name, std::string_view run_id) {
  const std::string path = describe(name);
  DF_TRY(const std::string text, read_file(vfs, path, kManifestBytesMax));
  auto manifest = decode_manifest(text);
  if (!manifest) return std::unexpected(manifest.error().within("read " + vfs.path_of(path)));
  const Status own = check_belongs(*manifest, name, run_id);
  if (!own) return std::unexpected(own.error().within("read " + vfs.path_of(path)));
  return manifest;
}

}  // namespace deepfreeze

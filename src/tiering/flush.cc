// The steps of a flush. The attempt is decided: its manifest is fixed bytes, and nobody else uses
// its names, so that two flushers write the same.
//
//  1  The run's record and claims are there, by copy_history(): the caller has done it.
//  2  Each file that is not there yet: blocks checked, whole, durable, named; or shared with an
//     earlier attempt there (shared_files.h). Those of other nodes are theirs to bring.
//  3  Settle the names: those of the files, those that another flusher gave and died over, and that
//     of the attempt's directory.
//  4  Nobody continues the run from the far tier; all files are still there, and stay if they are
//     referred to. If some came from other nodes, their names are settled, too: their flusher may
//     have died before it did.
//  5  The manifest, without replacing; one that is there already must have the same bytes. Settle
//     its name.
//  6  The files and the nearer manifest are there still, and references lead to files: a deletion
//     may have come in between, and an attempt that it has removed must not come back without its
//     files.
#include "tiering/flush.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/fail_point.h"
#include "base/log.h"
#include "base/try.h"
#include "manifest/commit.h"
#include "manifest/record_file.h"
#include "tiering/history_copy.h"
#include "tiering/shared_files.h"

namespace deepfreeze {
namespace {

std::string directory_of(const Manifest& manifest) {
  return attempt_dir_name({manifest.point.step, manifest.point.attempt_id});
}

// Step 2. A sealed name whose header does not verify is rot, since no unfinished file has it.
Status bring_file(Vfs& from, const Manifest& manifest, const ManifestFile& file, TierStore& to,
                  const CopySettings& settings) {
  if (has_sealed_file(to.view(), manifest, file)) {
    if (settings.on_bytes) settings.on_bytes(file.bytes, 0);
    return {};
  }
  CopyRequest request{.from = from, .manifest = manifest, .file = file, .to = to};
  DF_TRY(const bool is_shared, share_file(request, settings));
  if (is_shared) return {};
  Status copied = copy_sealed_file(request, settings);
  if (copied || copied.error().code() != ErrorCode::kExists) return copied;
  if (has_sealed_file(to.view(), manifest, file)) return {};  // another flusher was faster
  request.if_taken = IfTaken::kReplace;
  return copy_sealed_file(request, settings);
}

// Step 5.
Status put_manifest(const Manifest& manifest, const std::string& text, TierStore& to) {
  const std::string path = path_in_run(manifest, kManifestFile);
  Status put = put_text(to, path, text);
  if (put || put.error().code() != ErrorCode::kExists) return put;
  DF_TRY(const std::string there, read_file(to.view(), path, kManifestBytesMax));
  if (there == text) return {};
  // One of another step or run is no outcome of this attempt.
  const auto other = decode_manifest(there);
  if (other && other->run_id == manifest.run_id && other->point.step == manifest.point.step &&
      other->point.attempt_id == manifest.point.attempt_id) {
    return fail(ErrorCode::kCorrupt,
                fmt::format("{} has another outcome already", to.view().path_of(path)));
  }
  return put_text(to, path, text, IfTaken::kReplace);  // rot
}

Result<std::string> read_own_manifest(Vfs& from, const Manifest& manifest) {
  DF_TRY(std::string text,
         read_file(from, path_in_run(manifest, kManifestFile), kManifestBytesMax));
  DF_TRY(const Manifest decoded, decode_manifest(text));
  if (decoded == manifest) return text;
  return fail(ErrorCode::kCorrupt, fmt::format("{} has changed since it was listed",
                                               from.path_of(path_in_run(manifest, kManifestFile))));
}

bool is_deleted(Vfs& from, const Manifest& manifest) {
  const auto record = from.open_read(path_in_run(manifest, kManifestFile), Access::kBuffered);
  return !record && record.error().code() == ErrorCode::kNotFound;
}

// Whether the file is another node's.
bool is_elsewhere(Vfs& from, const Manifest& manifest, const ManifestFile& file) {
  const auto own = from.open_read(path_in_run(manifest, file.name), Access::kBuffered);
  return !own && own.error().code() == ErrorCode::kNotFound;
}

Status bring_files(Vfs& from, const Manifest& manifest, TierStore& to, const CopySettings& settings,
                   FlushShare share) {
  for (const ManifestFile& file : manifest.files) {
    if (share == FlushShare::kOfNode && is_elsewhere(from, manifest, file)) continue;
    DF_TRY_VOID(bring_file(from, manifest, file, to, settings));
    DF_FAIL_POINT("flush.file");
  }
  DF_TRY_VOID(to.settle(""));
  DF_TRY_VOID(to.settle(directory_of(manifest)));
  DF_FAIL_POINT("flush.settled");
  return {};
}

// Step 4, if other nodes bring files, too.
Status await_others(const Manifest& manifest, TierStore& to) {
  const Status there = check_all_there(manifest, to.view());
  if (there) return to.settle(directory_of(manifest));
  if (there.error().code() != ErrorCode::kIncomplete) return there;
  return fail(ErrorCode::kBusy,
              "other nodes have not brought their files yet: " + there.error().message());
}

Status secure_references(Vfs& from, const Manifest& manifest, TierStore& to,
                         const CopySettings& settings, FlushShare share) {
  for (const ManifestFile& file : manifest.files) {
    if (share == FlushShare::kOfNode && is_elsewhere(from, manifest, file)) continue;
    DF_TRY_VOID(
        secure_reference({.from = from, .manifest = manifest, .file = file, .to = to}, settings));
  }
  return {};
}

Status flush_steps(Vfs& from, const Manifest& manifest, TierStore& to, const CopySettings& settings,
                   Vfs* near, FlushShare share) {
  DF_TRY(const std::string text, read_own_manifest(from, manifest));
  DF_TRY_VOID(bring_files(from, manifest, to, settings, share));
  if (near != nullptr) DF_TRY_VOID(check_same_history(*near, to.view()));
  if (share == FlushShare::kOfNode) DF_TRY_VOID(await_others(manifest, to));
  DF_TRY_VOID(secure_references(from, manifest, to, settings, share));
  DF_TRY_VOID(check_all_there(manifest, to.view()));
  DF_TRY_VOID(read_own_manifest(from, manifest));
  DF_FAIL_POINT("flush.checked");
  DF_TRY_VOID(put_manifest(manifest, text, to));
  DF_FAIL_POINT("flush.manifest_put");
  DF_TRY_VOID(to.settle(directory_of(manifest)));
  // Another flusher may have brought the attempt anew, and died before it secured its references.
  DF_TRY_VOID(secure_references(from, manifest, to, settings, share));
  return check_all_there(manifest, to.view());
}

// Nobody else completes or removes a copy that a flush has begun. A committed one stays, also if
// another process committed it: a deletion there goes by the tier's own rules. If other nodes have
// a share, one process removes copies that were begun (flusher.h); but nobody leaves a manifest
// behind whose files that process has removed meanwhile.
void remove_begun(const Manifest& manifest, TierStore& to, FlushShare share) {
  const AttemptName name{manifest.point.step, manifest.point.attempt_id};
  const auto there = read_manifest(to.view(), name, manifest.run_id);
  if (there && check_all_there(manifest, to.view())) return;
  if (!there && (share == FlushShare::kOfNode || there.error().code() != ErrorCode::kNotFound))
    return;
  const Status removed = remove_attempt(to.view(), name);
  if (!removed) {
    log_warning(fmt::format("a copy of a deleted checkpoint stays in {}: {}",
                            to.view().path_of(directory_of(manifest)), removed.error().message()));
  }
}

}  // namespace

Status check_all_there(const Manifest& manifest, Vfs& to) {
  const std::string directory = directory_of(manifest);
  DF_TRY(const std::vector<DirEntry> entries, to.list(directory));
  for (const ManifestFile& file : manifest.files) {
    if (has_name(entries, file.name)) continue;
    return fail(ErrorCode::kIncomplete,
                fmt::format("{}: {} is gone again", to.path_of(directory), file.name));
  }
  return {};
}

Status flush_attempt(Vfs& from, const Manifest& manifest, TierStore& to,
                     const CopySettings& settings, Vfs* near, FlushShare share) {
  const Status flushed = flush_steps(from, manifest, to, settings, near, share);
  if (flushed) return {};
  const std::string what = fmt::format("flush step {} from {} to {}", manifest.point.step,
                                       from.path_of(""), to.view().path_of(""));
  if (!is_deleted(from, manifest) && flushed.error().code() != ErrorCode::kIncomplete) {
    return std::unexpected(flushed.error().within(what));
  }
  remove_begun(manifest, to, share);
  return fail(ErrorCode::kGone, what + ": it was deleted meanwhile");
}

}  // namespace deepfreeze

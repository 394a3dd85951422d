// Deleting an attempt, so that a crash leaves garbage and never a checkpoint with a hole.
//
//  1  manifest.json is renamed to manifest.deleted.json: from here on no reader counts it, and a
//     collector knows that the deletion is to be finished. An aborted manifest stays: it makes
//     the rest of its attempt garbage already.
//  2  Sync the attempt's directory, even if another process did step 1 or aborted the attempt: it
//     may have died before its sync.
//  3  Remove all other files. 4  Sync the directory: the remaining files can't pass for undecided.
//  5  Remove the decision, then the directory.
//  6  After the last attempt: sync the run's directory, so that none comes back.
//
// A name that is gone already was removed by another collector: that is success everywhere.
#include "manifest/remove_attempt.h"

#include "base/fail_point.h"
#include "base/try.h"
#include "manifest/commit.h"
#include "manifest/record_file.h"
#include "manifest/run_directory.h"

namespace deepfreeze {
namespace {

Status unless_gone(Status status) {
  if (!status && status.error().code() == ErrorCode::kNotFound) return {};
  return status;
}

// Step 1 for a committed attempt. Returns the file that is to go last; "" if there is none.
Result<std::string_view> mark_deleted(Vfs& vfs, const AttemptName& name,
                                      const std::vector<DirEntry>& entries) {
  const std::string directory = attempt_dir_name(name);
  if (has_name(entries, kDeletedManifestFile)) {
    if (!has_name(entries, kManifestFile)) return kDeletedManifestFile;
    // A store without renames puts the one before it deletes the other.
    DF_TRY_VOID(unless_gone(vfs.remove_file(join_name(directory, kManifestFile))));
    return kDeletedManifestFile;
  }
  if (!has_name(entries, kManifestFile)) return "";
  const auto manifest = read_manifest(vfs, name, "");
  if (manifest && manifest->outcome == Outcome::kAborted) return kManifestFile;
  if (!manifest && manifest.error().code() != ErrorCode::kNotFound) {
    return std::unexpected(manifest.error());
  }
  DF_TRY_VOID(unless_gone(vfs.rename_no_replace(join_name(directory, kManifestFile),
                                                join_name(directory, kDeletedManifestFile))));
  DF_FAIL_POINT("remove.manifest_removed");
  return kDeletedManifestFile;
}

// Step 3. A name that can't be removed, such as a foreign directory, must not keep all other data.
Status remove_files(Vfs& vfs, const std::string& directory, std::string_view last) {
  const auto entries = vfs.list(directory);
  if (!entries) return unless_gone(std::unexpected(entries.error()));
  Status first;
  for (const DirEntry& entry : *entries) {
    if (entry.name == last) continue;
    Status removed = unless_gone(vfs.remove_file(join_name(directory, entry.name)));
    if (first && !removed) first = std::move(removed);
  }
  DF_TRY_VOID(first);
  DF_FAIL_POINT("remove.files_removed");
  return {};
}

}  // namespace

namespace {

// A mark may come in between from a process that does not know yet (NodeParity).
Status remove_empty(Vfs& vfs, const std::string& directory) {
  Status removed = unless_gone(vfs.remove_dir(directory));
  const auto left = removed ? Result<std::vector<DirEntry>>() : vfs.list(directory);
  if (removed || !left || left->empty()) return removed;
  DF_TRY_VOID(remove_files(vfs, directory, ""));
  return unless_gone(vfs.remove_dir(directory));
}

}  // namespace

Status remove_unsynced(Vfs& vfs, const AttemptName& name) {
  const std::string directory = attempt_dir_name(name);
  const auto entries = vfs.list(directory);
  if (!entries) return unless_gone(std::unexpected(entries.error()));
  DF_TRY(const std::string_view last, mark_deleted(vfs, name, *entries));
  if (!last.empty()) {
    DF_TRY_VOID(unless_gone(vfs.sync_dir(directory)));  // step 2
    DF_FAIL_POINT("remove.manifest_synced");
  }
  DF_TRY_VOID(remove_files(vfs, directory, last));
  if (!last.empty()) {
    DF_TRY_VOID(unless_gone(vfs.sync_dir(directory)));  // step 4
    DF_FAIL_POINT("remove.files_synced");
    DF_TRY_VOID(unless_gone(vfs.remove_file(join_name(directory, last))));  // step 5
  }
  DF_TRY_VOID(remove_empty(vfs, directory));
  DF_FAIL_POINT("remove.directory_removed");
  return {};
}

Status remove_attempts(Vfs& vfs, std::span<const AttemptName> names,
                       const std::function<bool(const AttemptName&)>& may_go) {
  Status first;
  for (const AttemptName& name : names) {
    if (may_go && !may_go(name)) continue;
    // An attempt that can't be removed, for instance because of a foreign file in it, must not keep
    // all others.
    Status removed = remove_unsynced(vfs, name);
    if (first && !removed) first = std::move(removed);
  }
  DF_TRY_VOID(vfs.sync_dir(""));  // step 6
  return first;
}

Status remove_attempt(Vfs& vfs, const AttemptName& name) {
  return remove_attempts(vfs, std::span(&name, 1));
}

}  // namespace deepfreeze

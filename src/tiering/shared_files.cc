// A flush and a sweep may meet; no clock and no claim keeps them apart, but their order does:
//
//   flush: 1 the reference   2 looks for the mark "retired", then for the file   3 the manifest
//   sweep: 1 the mark        2 reads all references   3 deletes the file, then the mark
//
// If the flush sees no mark and the file is there, no sweep has begun before its reference was
// there, and each later one reads it. If it sees the mark, or no file, it sends its own. A mark is
// never taken back and a name never used again, so that a sweep that comes too late finds nothing.
#include "tiering/shared_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/fail_point.h"
#include "base/random_id.h"
#include "base/try.h"
#include "format/file_reference.h"
#include "manifest/history.h"
#include "manifest/record_file.h"
#include "manifest/sealed_parts.h"
#include "packed/open_part.h"

namespace deepfreeze {
namespace {

bool is_same_file(const Manifest& a, const ManifestFile& in_a, const Manifest& b,
                  const ManifestFile& in_b) {
  return in_a.name == in_b.name && in_a.header_crc == in_b.header_crc && in_a.bytes == in_b.bytes &&
         origin_of(a, in_a) == origin_of(b, in_b);
}

// The attempts of the tier that have the file, newest first.
std::vector<const Manifest*> attempts_with(const CopyRequest& request, const RunListing& there) {
  std::vector<const Manifest*> found;
  for (const AttemptState& attempt : there.attempts) {
    if (!attempt.committed() || attempt.manifest->point == request.manifest.point) continue;
    const bool has_it = std::ranges::any_of(attempt.manifest->files, [&](const ManifestFile& file) {
      return is_same_file(request.manifest, request.file, *attempt.manifest, file);
    });
    if (has_it) found.push_back(&*attempt.manifest);
  }
  std::ranges::sort(found,
                    [](const Manifest* a, const Manifest* b) { return older(b->point, a->point); });
  return found;
}

// The first of the run that has the file: the one for which it was written, or that of a fork.
bool is_first_with(const CopyRequest& request, const Manifest& attempt) {
  return origin_of(request.manifest, request.file).point == attempt.point ||
         attempt.annotations.parent.has_value();
}

// The last but one that was sent has the other copy. Beside a single one a second copy is sent, so
// that one bad block does not cost all.
bool link_file(const CopyRequest& request, const RunListing& there) {
  const std::vector<const Manifest*> sources = attempts_with(request, there);
  if (sources.empty()) return false;
  if (sources.size() == 1 && is_first_with(request, *sources.front())) return false;
  const Manifest& source = *sources[std::min<std::size_t>(1, sources.size() - 1)];
  if (!has_sealed_file(request.to.view(), source, request.file)) return false;
  const Status linked = request.to.link(path_in_run(source, request.file.name),
                                        path_in_run(request.manifest, request.file.name));
  return linked.has_value();  // the file is sent; a tier that fails says so then
}

// A file of the shared directory.
struct SharedFile {
  std::string name;  // below the directory
  bool is_there = false;
  bool is_retired = false;
};

std::string path_of(std::string_view name) { return join_name(kSharedDirectory, name); }
std::string mark_of(const SharedFile& file) {
  return path_of(file.name) + std::string(kRetiredMark);
}

Result<std::vector<SharedFile>> list_shared(Vfs& view) {
  const auto entries = view.list(kSharedDirectory);
  if (!entries && entries.error().code() == ErrorCode::kNotFound) return std::vector<SharedFile>();
  if (!entries) return std::unexpected(entries.error());
  std::vector<SharedFile> files;
  for (const DirEntry& entry : *entries) {
    std::string_view name = entry.name;
    const bool is_mark = name.ends_with(kRetiredMark);
    if (is_mark) name.remove_suffix(kRetiredMark.size());
    if (!stem_of_shared(name)) continue;
    auto known = std::ranges::find(files, name, &SharedFile::name);
    if (known == files.end()) known = files.insert(known, {.name = std::string(name)});
    (is_mark ? known->is_retired : known->is_there) = true;
  }
  return files;
}

bool has_header(Vfs& view, const SharedFile& shared, const ManifestFile& file) {
  const auto found = read_part_header(view, path_of(shared.name));
  return found && found->file_bytes == file.bytes && found->crc == file.header_crc;
}

// One that is there, or a new one.
Result<std::string> shared_file_for(const CopyRequest& request, const CopySettings& settings) {
  const std::string stem =
      shared_stem(origin_of(request.manifest, request.file), request.file.name);
  Vfs& view = request.to.view();
  DF_TRY(const std::vector<SharedFile> files, list_shared(view));
  for (const SharedFile& file : files) {
    if (!file.is_there || file.is_retired || stem_of_shared(file.name) != stem) continue;
    if (!has_header(view, file, request.file)) continue;
    if (settings.on_bytes) settings.on_bytes(request.file.bytes, 0);
    return file.name;
  }
  const std::string name = shared_file_name(stem, random_id());
  CopyRequest copy = request;
  copy.to_name = path_of(name);
  DF_TRY_VOID(copy_sealed_file(copy, settings));
  DF_FAIL_POINT("flush.shared");
  return name;
}

}  // namespace

Result<bool> share_file(const CopyRequest& request, const CopySettings& settings) {
  if (!request.file.origin) return false;
  if (!request.to.takes_references()) {
    const bool is_linked = settings.there != nullptr && link_file(request, *settings.there);
    if (is_linked && settings.on_bytes) settings.on_bytes(request.file.bytes, 0);
    return is_linked;
  }
  if (request.file.bytes < kReferredBytesMin) return false;
  DF_TRY(const std::string name, shared_file_for(request, settings));
  const Status put = put_text(request.to, path_in_run(request.manifest, request.file.name),
                              encode_reference(name));
  if (!put && put.error().code() == ErrorCode::kExists) return false;
  DF_TRY_VOID(put);
  DF_FAIL_POINT("flush.referred");
  return true;
}

Status secure_reference(const CopyRequest& request, const CopySettings& settings) {
  if (!request.to.takes_references() || !request.file.origin) return {};
  Vfs& view = request.to.view();
  const std::string path = path_in_run(request.manifest, request.file.name);
  DF_TRY(const std::optional<std::string> name, referred_file(view, path));
  if (!name) return {};
  const auto mark = view.open_read(*name + std::string(kRetiredMark), Access::kBuffered);
  if (!mark && mark.error().code() != ErrorCode::kNotFound) return std::unexpected(mark.error());
  if (!mark && has_sealed_file(view, request.manifest, request.file)) return {};
  CopyRequest copy = request;
  copy.if_taken = IfTaken::kReplace;
  return copy_sealed_file(copy, settings);
}

namespace {

// Names of shared files, and stems of all that have one.
struct Referred {
  std::set<std::string, std::less<>> names;
  std::set<std::string, std::less<>> stems;

  [[nodiscard]] bool has(const SharedFile& file) const {
    return names.contains(file.name) || stems.contains(stem_of_shared(file.name).value_or(""));
  }
};

void add_stems(const Manifest& manifest, Referred& all) {
  for (const ManifestFile& file : manifest.files) {
    if (file.origin) all.stems.insert(shared_stem(*file.origin, file.name));
  }
}

// The references of an attempt whose manifest is not there yet, or does not verify.
Status add_names(Vfs& view, const std::string& directory, Referred& all) {
  const auto entries = view.list(directory);
  if (!entries && entries.error().code() == ErrorCode::kNotFound) return {};  // deleted meanwhile
  if (!entries) return std::unexpected(entries.error());
  for (const DirEntry& entry : *entries) {
    if (!parse_sealed_file_name(entry.name)) continue;
    const auto name = referred_file(view, join_name(directory, entry.name));
    if (!name && name.error().code() == ErrorCode::kNotFound) continue;
    if (!name) return std::unexpected(name.error());
    if (*name) all.names.insert((*name)->substr(kSharedDirectory.size() + 1));
  }
  return {};
}

Referred referred_by_manifests(const RunListing& listing) {
  Referred all;
  for (const AttemptState& attempt : listing.attempts) {
    if (attempt.committed()) add_stems(*attempt.manifest, all);
  }
  return all;
}

Result<Referred> referred_now(Vfs& view) {
  DF_TRY(const RunListing listing, read_run(view));
  Referred all = referred_by_manifests(listing);
  for (const AttemptState& attempt : listing.attempts) {
    if (attempt.committed()) continue;
    DF_TRY_VOID(add_names(view, attempt_dir_name(attempt.name), all));
  }
  return all;
}

Status remove_if_there(Vfs& view, const std::string& name) {
  const Status removed = view.remove_file(name);
  return !removed && removed.error().code() == ErrorCode::kNotFound ? Status{} : removed;
}

Status remove_shared(Vfs& view, const SharedFile& file) {
  DF_TRY_VOID(remove_if_there(view, path_of(file.name)));
  DF_FAIL_POINT("sweep.removed");
  return remove_if_there(view, mark_of(file));
}

}  // namespace

Status sweep_shared_files(TierStore& store, const RunListing& listing) {
  if (!store.takes_references()) return {};
  Vfs& view = store.view();
  DF_TRY(std::vector<SharedFile> files, list_shared(view));
  const Referred before = referred_by_manifests(listing);
  std::erase_if(files, [&](const SharedFile& file) { return before.has(file); });
  if (files.empty()) return {};
  DF_TRY(const Referred first, referred_now(view));
  std::erase_if(files, [&](const SharedFile& file) { return first.has(file); });
  for (const SharedFile& file : files) {
    if (!file.is_retired) DF_TRY_VOID(put_text(store, mark_of(file), "", IfTaken::kReplace));
    DF_FAIL_POINT("sweep.retired");
  }
  DF_TRY(const Referred now, referred_now(view));
  for (const SharedFile& file : files) {
    if (!now.has(file)) DF_TRY_VOID(remove_shared(view, file));
  }
  return {};
}

}  // namespace deepfreeze

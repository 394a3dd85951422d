// A flush and a sweep may meet; no clock and no claim keeps them apart, but their order does:
//
//   flush: 1 the reference   2 looks for the mark "retired", then for the file   3 the manifest
//   sweep: 1 the mark        2 reads all references   3 deletes the file, then the mark
//
// If the flush sees no mark and the file is there, no sweep has begun before its reference was
// there, and each later one reads it. If it sees the mark, or no file, it sends its own. A mark is
// never taken back and each upload has a name of its own, so that a sweep that comes too late finds
// nothing. The store must refuse a second file of a name: else a reference that arrives late could
// replace the file that was sent instead.
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

// Each costs an open on the tier.
constexpr std::size_t kLinkSourcesMax = 8;

// The newest attempts of the tier that have the file, newest first.
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
  found.resize(std::min(found.size(), kLinkSourcesMax));
  return found;
}

// A file that some of the attempts have; the newest of them is its source.
struct Copy {
  std::optional<FileId> id;
  const Manifest* source = nullptr;
  std::size_t attempts = 0;
};

std::vector<Copy> copies_of(const CopyRequest& request, std::span<const Manifest* const> sources) {
  std::vector<Copy> copies;
  for (const Manifest* source : sources) {
    const auto file =
        request.to.view().open_read(path_in_run(*source, request.file.name), Access::kBuffered);
    if (!file) continue;
    const std::optional<FileId> id = (*file)->id();
    const auto known = std::ranges::find_if(
        copies, [&](const Copy& copy) { return id.has_value() && copy.id == id; });
    if (known == copies.end()) {
      copies.push_back({.id = id, .source = source, .attempts = 1});
    } else {
      ++known->attempts;
    }
  }
  return copies;
}

// The copy that fewer attempts have. If several have one and the same, a second one is sent, so
// that a bad block does not cost all.
bool link_file(const CopyRequest& request, const RunListing& there) {
  const std::vector<const Manifest*> sources = attempts_with(request, there);
  const std::vector<Copy> copies = copies_of(request, sources);
  if (copies.empty() || (copies.size() == 1 && copies.front().attempts > 1)) return false;
  // The one of two that is not the newest's.
  const auto fewest = std::ranges::min_element(copies.rbegin(), copies.rend(), {}, &Copy::attempts);
  const Manifest& source = *fewest->source;
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

Result<bool> has_header(Vfs& view, const SharedFile& shared, const ManifestFile& file) {
  const auto found = read_part_header(view, path_of(shared.name));
  if (found) return found->file_bytes == file.bytes && found->crc == file.header_crc;
  const ErrorCode code = found.error().code();
  if (code == ErrorCode::kCorrupt || code == ErrorCode::kNotFound) return false;
  return std::unexpected(found.error());
}

// One that is there, or a new one.
Result<std::string> shared_file_for(const CopyRequest& request, const CopySettings& settings) {
  const std::string stem =
      shared_stem(origin_of(request.manifest, request.file), request.file.name);
  Vfs& view = request.to.view();
  DF_TRY(const std::vector<SharedFile> files, list_shared(view));
  for (const SharedFile& file : files) {
    if (!file.is_there || file.is_retired || stem_of_shared(file.name) != stem) continue;
    DF_TRY(const bool is_it, has_header(view, file, request.file));
    if (!is_it) continue;
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
  if (!request.file.origin || !settings.shares) return false;
  if (!request.to.takes_references()) {
    const bool is_linked = settings.there != nullptr && link_file(request, *settings.there);
    if (is_linked && settings.on_bytes) settings.on_bytes(request.file.bytes, 0);
    return is_linked;
  }
  if (request.file.bytes < kReferredBytesMin) return false;
  DF_TRY(const std::string name, shared_file_for(request, settings));
  const Status put = put_text(request.to, path_in_run(request.manifest, request.file.name),
                              encode_reference(name));
  if (!put && put.error().code() == ErrorCode::kExists) {  // by another flusher, or it has rotted
    return has_sealed_file(request.to.view(), request.manifest, request.file);
  }
  DF_TRY_VOID(put);
  DF_FAIL_POINT("flush.referred");
  return true;
}

Status secure_reference(const CopyRequest& request, const CopySettings& settings) {
  if (!request.to.takes_references() || !request.file.origin) return {};
  Vfs& view = request.to.view();
  const std::string path = path_in_run(request.manifest, request.file.name);
  const auto name = referred_file(view, path);
  if (!name && name.error().code() == ErrorCode::kNotFound) {
    return fail(ErrorCode::kIncomplete, view.path_of(path) + " is gone again");
  }
  if (!name) return std::unexpected(name.error());
  if (!*name) return {};
  const auto mark = view.open_read(**name + std::string(kRetiredMark), Access::kBuffered);
  if (!mark && mark.error().code() != ErrorCode::kNotFound) return std::unexpected(mark.error());
  if (!mark && has_sealed_file(view, request.manifest, request.file)) return {};
  CopyRequest copy = request;
  copy.if_taken = IfTaken::kReplace;
  return copy_sealed_file(copy, settings);
}

Status retire_referred(TierStore& store, std::string_view name) {
  if (!store.takes_references()) return {};
  const auto referred = referred_file(store.view(), name);
  const ErrorCode code = referred ? ErrorCode::kInternal : referred.error().code();
  if (code == ErrorCode::kNotFound || code == ErrorCode::kCorrupt) return {};
  if (!referred) return std::unexpected(referred.error());
  if (!*referred) return {};
  return put_text(store, **referred + std::string(kRetiredMark), "", IfTaken::kReplace);
}

namespace {

// Names of shared files, stems of all that have one, and files of any origin.
struct Referred {
  std::set<std::string, std::less<>> names;
  std::set<std::string, std::less<>> stems;
  std::set<std::string, std::less<>> files;

  [[nodiscard]] bool has(const SharedFile& shared) const {
    const std::string_view stem = stem_of_shared(shared.name).value_or("");
    const std::string file = std::string(stem.substr(stem.find('.') + 1)) + ".safetensors";
    return names.contains(shared.name) || stems.contains(stem) || files.contains(file);
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
    const ErrorCode code = name ? ErrorCode::kInternal : name.error().code();
    if (code == ErrorCode::kNotFound) continue;
    if (code == ErrorCode::kCorrupt || code == ErrorCode::kUnsupported) {
      all.files.insert(entry.name);  // it may name any of them
      continue;
    }
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
  Status first_failure;  // one that can't be deleted holds up no other
  for (const SharedFile& file : files) {
    if (now.has(file)) continue;
    const Status removed = remove_shared(view, file);
    if (!removed && first_failure) first_failure = removed;
  }
  return first_failure;
}

}  // namespace deepfreeze

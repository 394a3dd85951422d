#include "inspect/left_places.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/log.h"
#include "base/try.h"
#include "format/names.h"
#include "manifest/record_file.h"
#include "nodes/routed_files.h"
#include "protect/rebuilt_files.h"
#include "restore/shard_file.h"
#include "storage/os_error.h"
#include "tiering/flush.h"
#include "tiering/flush_plan.h"
#include "tiering/merged_run.h"

namespace deepfreeze {
namespace {

using Copied = LeftPlaces::Copied;

// Whether all blocks of the file verify there.
bool is_whole(Vfs& vfs, const Manifest& manifest, const ManifestFile& file) {
  const auto shard = open_shard_file(vfs, manifest, file);
  if (!shard) return false;
  const auto fault = verify_blocks(vfs, *shard, {.thread_count = 1, .on_progress = {}});
  return fault && !*fault;
}

struct Source {
  Vfs* files = nullptr;
  bool is_calculated = false;
};

class Bringing {
 public:
  Bringing(const Manifest& manifest, TierStore& to, const CopySettings& settings)
      : manifest_(manifest), to_(to), settings_(settings) {}

  // kIncomplete: no source has the file. Another code: one may have it, or the destination fails.
  [[nodiscard]] Result<Copied> bring(const ManifestFile& file, std::span<const Source> sources);
  // Removes the files that were brought, but for those that took the place of damaged ones.
  void undo();

 private:
  // Empty: it is there. Else the reason; an error of the destination ends all.
  [[nodiscard]] Result<std::optional<Error>> try_one(const ManifestFile& file,
                                                     const Source& source);

  const Manifest& manifest_;
  TierStore& to_;
  const CopySettings& settings_;
  std::vector<std::string> brought_;
};

Result<std::optional<Error>> Bringing::try_one(const ManifestFile& file, const Source& source) {
  const Status copied = copy_sealed_file({.from = *source.files,
                                          .manifest = manifest_,
                                          .file = file,
                                          .to = to_,
                                          .if_taken = IfTaken::kReplace},
                                         settings_);
  if (copied) return std::nullopt;
  const Error& error = copied.error();
  const bool may_be_of_destination =
      error.code() == ErrorCode::kIo || error.code() == ErrorCode::kNoSpace;
  if (may_be_of_destination && is_whole(*source.files, manifest_, file)) {
    return std::unexpected(error);
  }
  return error;
}

Result<Copied> Bringing::bring(const ManifestFile& file, std::span<const Source> sources) {
  Copied found{.file = file.name, .bytes = file.bytes, .place = {}};
  if (is_whole(to_.view(), manifest_, file)) {
    if (settings_.on_bytes) settings_.on_bytes(file.bytes, 0);
    return found;
  }
  const std::string path = path_in_run(manifest_, file.name);
  const auto there = to_.view().open_read(path, Access::kBuffered);
  const bool is_new = !there && there.error().code() == ErrorCode::kNotFound;
  std::string faults;
  std::optional<Error> open;  // of a source that may have it
  for (const Source& source : sources) {
    DF_TRY(const auto fault, try_one(file, source));
    if (!fault) {
      if (is_new) brought_.push_back(path);
      found.place = source.files->path_of(path);
      found.is_calculated = source.is_calculated;
      return found;
    }
    if (may_have_good_copy(*fault)) open = fault;
    faults += fmt::format("; {}", fault->message());
  }
  return fail(open ? open->code() : ErrorCode::kIncomplete,
              fmt::format("no place has {} of step {} whole{}", file.name, manifest_.point.step,
                          faults.empty() ? ", and no parity covers it" : faults));
}

void Bringing::undo() {
  for (const std::string& path : brought_) (void)to_.view().remove_file(path);
  (void)to_.view().remove_dir(attempt_dir_name(name_of(manifest_)));  // if nothing else is there
}

std::vector<Source> sources_of(const std::vector<Vfs*>& copies, Vfs* calculated) {
  std::vector<Source> sources;
  for (Vfs* const copy : copies) sources.push_back({.files = copy});
  if (calculated != nullptr) sources.push_back({.files = calculated, .is_calculated = true});
  return sources;
}

}  // namespace

// The files of one checkpoint, in all places.
struct LeftPlaces::Pieces {
  FileRoutes routes;
  std::unique_ptr<Vfs> files;       // by the routes
  std::unique_ptr<Vfs> calculated;  // from `files`; null: there is no parity
};

LeftPlaces::LeftPlaces(std::vector<OpenedRun> places) : places_(std::move(places)) {
  std::vector<RunListing> listings;
  for (const OpenedRun& place : places_) listings.push_back(place.listing);
  listing_ = merge(listings);
}

Result<LeftPlaces> LeftPlaces::open(std::span<const std::string> paths) {
  std::vector<OpenedRun> places;
  for (const std::string& path : paths) {
    DF_TRY(OpenedRun place, open_run(path));
    if (!places.empty() && place.listing.run.run_id != places.front().listing.run.run_id) {
      return fail(ErrorCode::kMismatch,
                  fmt::format("{} and {} hold different runs", places.front().path, path));
    }
    places.push_back(std::move(place));
  }
  return LeftPlaces(std::move(places));
}

Status LeftPlaces::copy_claims(TierStore& to) const {
  for (const OpenedRun& place : places_) DF_TRY_VOID(adopt_history(to.view(), *place.vfs));
  return {};
}

// A place that can't be listed counts as lost, as a lost node does.
LeftPlaces::Pieces LeftPlaces::find_pieces(const Manifest& manifest) const {
  const std::string directory = attempt_dir_name(name_of(manifest));
  Pieces pieces;
  std::vector<std::string> parity;
  for (const OpenedRun& place : places_) {
    const auto entries = place.vfs->list(directory);
    if (!entries && entries.error().code() != ErrorCode::kNotFound) {
      log_warning(fmt::format("{} counts as lost: {}", place.path, entries.error().message()));
    }
    if (!entries) continue;
    for (const DirEntry& entry : *entries) {
      auto& route = pieces.routes[join_name(directory, entry.name)];
      if (route.empty() && is_parity_file_name(entry.name)) parity.push_back(entry.name);
      route.push_back(place.vfs.get());
    }
  }
  pieces.files = route_files(pieces.routes);
  if (!parity.empty()) pieces.calculated = open_rebuilt_files(*pieces.files, manifest, parity);
  return pieces;
}

Result<std::vector<Copied>> LeftPlaces::bring_files(const Pieces& pieces, const Manifest& manifest,
                                                    TierStore& to,
                                                    const CopySettings& settings) const {
  Bringing bringing(manifest, to, settings);
  std::vector<Copied> files;
  for (const ManifestFile& file : manifest.files) {
    const auto route = pieces.routes.find(path_in_run(manifest, file.name));
    const std::vector<Vfs*> copies =
        route == pieces.routes.end() ? std::vector<Vfs*>() : route->second;
    auto brought = bringing.bring(file, sources_of(copies, pieces.calculated.get()));
    if (!brought) {
      if (brought.error().code() == ErrorCode::kIncomplete) bringing.undo();
      return std::unexpected(brought.error());
    }
    files.push_back(*std::move(brought));
  }
  return files;
}

// All files are there: this gives the checkpoint its manifest, as a flush does.
Status LeftPlaces::commit(const Manifest& manifest, TierStore& to,
                          const CopySettings& settings) const {
  const AttemptName name = name_of(manifest);
  const auto has_it = [&](const OpenedRun& place) {
    const auto known = std::ranges::find(place.listing.attempts, name, &AttemptState::name);
    return known != place.listing.attempts.end() && known->committed();
  };
  const auto place = std::ranges::find_if(places_, has_it);
  if (place == places_.end()) {
    return fail(ErrorCode::kNotFound,
                fmt::format("no place has the manifest of step {}", manifest.point.step));
  }
  return flush_attempt(*place->vfs, manifest, to, {.rate = settings.rate, .stop = settings.stop},
                       nullptr);
}

Result<std::vector<Copied>> LeftPlaces::rebuild(const Manifest& manifest, TierStore& to,
                                                const CopySettings& settings) const {
  const Pieces pieces = find_pieces(manifest);
  DF_TRY(auto files, bring_files(pieces, manifest, to, settings));
  DF_TRY_VOID(commit(manifest, to, settings));
  return files;
}

}  // namespace deepfreeze

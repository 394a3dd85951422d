#include "inspect/left_places.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/try.h"
#include "format/names.h"
#include "manifest/commit.h"
#include "manifest/record_file.h"
#include "nodes/routed_files.h"
#include "protect/rebuilt_files.h"
#include "tiering/flush.h"
#include "tiering/flush_plan.h"
#include "tiering/merged_run.h"

namespace deepfreeze {
namespace {

using Copied = LeftPlaces::Copied;

// Whether another copy of the file may do.
bool is_of_this_copy(const Error& error) {
  switch (error.code()) {
    case ErrorCode::kCorrupt:
    case ErrorCode::kIncomplete:
    case ErrorCode::kNotFound:
    case ErrorCode::kIo:
      return true;
    default:
      return false;
  }
}

// The copy has a name only once it is whole, so one that is there was begun by an earlier rebuild.
Result<Copied> bring(const ManifestFile& file, std::span<Vfs* const> copies, Vfs* calculated,
                     const Manifest& manifest, TierStore& to, const CopySettings& settings) {
  Copied copied_file{.file = file.name, .bytes = file.bytes, .place = {}};
  if (has_sealed_file(to.view(), manifest, file)) {
    if (settings.on_bytes) settings.on_bytes(file.bytes, 0);
    return copied_file;
  }
  std::vector<Vfs*> sources(copies.begin(), copies.end());
  if (calculated != nullptr) sources.push_back(calculated);
  std::string faults;
  for (Vfs* const source : sources) {
    const Status copied = copy_sealed_file({.from = *source,
                                            .manifest = manifest,
                                            .file = file,
                                            .to = to,
                                            .if_taken = IfTaken::kReplace},
                                           settings);
    if (copied) {
      copied_file.place = source->path_of(path_in_run(manifest, file.name));
      copied_file.is_calculated = source == calculated;
      return copied_file;
    }
    if (!is_of_this_copy(copied.error())) return std::unexpected(copied.error());
    faults += fmt::format("; {}", copied.error().message());
  }
  return fail(ErrorCode::kIncomplete,
              fmt::format("no place has {} of step {} whole{}", file.name, manifest.point.step,
                          faults.empty() ? ", and no parity covers it" : faults));
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

Result<LeftPlaces::Pieces> LeftPlaces::find_pieces(const Manifest& manifest) const {
  const std::string directory = attempt_dir_name(name_of(manifest));
  Pieces pieces;
  std::vector<std::string> parity;
  for (const OpenedRun& place : places_) {
    const auto entries = place.vfs->list(directory);
    if (!entries && entries.error().code() == ErrorCode::kNotFound) continue;
    if (!entries) return std::unexpected(entries.error());
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
  std::vector<Copied> files;
  for (const ManifestFile& file : manifest.files) {
    const auto route = pieces.routes.find(path_in_run(manifest, file.name));
    const std::vector<Vfs*> none;
    const std::vector<Vfs*>& copies = route == pieces.routes.end() ? none : route->second;
    DF_TRY(Copied copied_file,
           bring(file, copies, pieces.calculated.get(), manifest, to, settings));
    files.push_back(std::move(copied_file));
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
  DF_TRY(const Pieces pieces, find_pieces(manifest));
  auto files = bring_files(pieces, manifest, to, settings);
  if (files) {
    DF_TRY_VOID(commit(manifest, to, settings));
    return files;
  }
  const auto known = read_manifest(to.view(), name_of(manifest), "");
  if (files.error().code() == ErrorCode::kIncomplete && !known) {
    DF_TRY_VOID(remove_attempt(to.view(), name_of(manifest)));
  }
  return files;
}

}  // namespace deepfreeze

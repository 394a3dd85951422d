#include "restore/snapshot.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "base/try.h"
#include "format/state_tree.h"
#include "restore/shard_file.h"

namespace deepfreeze {
namespace {

std::string checkpoint_name(const Manifest& manifest) {
  return fmt::format("checkpoint step {}", manifest.point.step);
}

Status check_readable(const Manifest& manifest) {
  if (manifest.outcome != Outcome::kCommitted) {
    return fail(ErrorCode::kInvalidArgument, "aborted, so it holds nothing");
  }
  if (manifest.integrity == Manifest{}.integrity) return {};
  return fail(ErrorCode::kUnsupported,
              fmt::format("unknown integrity mode {}", manifest.integrity));
}

// Every rank's files, each once: a manifest that leaves one out is not a whole checkpoint.
Status check_files_complete(const std::vector<ShardFile>& files, std::uint32_t world_size) {
  std::map<std::pair<std::uint32_t, std::uint32_t>, PartName> parts;  // by rank, file
  for (const ShardFile& file : files) {
    const PartName& part = file.header.identity.part;
    if (!parts.try_emplace({part.rank, part.file}, part).second) {
      return fail(ErrorCode::kCorrupt, fmt::format("file {} is listed twice", file.name));
    }
  }
  std::uint32_t rank = 0;
  std::uint32_t file = 0;
  std::uint32_t file_count = 0;  // of the rank, as its first file says
  std::size_t in_order = 0;
  for (const auto& [place, part] : parts) {
    if (file == 0) file_count = part.file_count;
    if (place != std::pair{rank, file} || part.file_count != file_count) break;
    ++in_order;
    if (++file < file_count) continue;
    file = 0;
    ++rank;
  }
  if (rank == world_size && in_order == parts.size()) return {};
  return fail(ErrorCode::kCorrupt, fmt::format("the manifest lists no file {} of rank {} of {}",
                                               file, rank, world_size));
}

// Its pieces stand in rank 0's files, in their order; they are taken out of there.
Result<std::string> join_tree(std::vector<ShardFile>& files) {
  std::map<std::uint32_t, std::string*> pieces;
  std::size_t bytes = 0;
  for (ShardFile& file : files) {
    const PartName& part = file.header.identity.part;
    if (part.rank != 0) continue;
    pieces.emplace(part.file, &file.header.tree);
    bytes += file.header.tree.size();
  }
  if (bytes > kTreeBytesMax) return fail(ErrorCode::kCorrupt, "the state tree is too large");
  std::string tree;
  tree.reserve(bytes);
  for (const auto& [file, piece] : pieces) tree += std::exchange(*piece, {});
  return tree;
}

// By entry of the header.
std::vector<std::optional<ValueRange>> ranges_of_entries(const ShardHeader& header) {
  std::vector<std::optional<ValueRange>> ranges(header.entries.size());
  if (!header.ranges) return ranges;
  auto next = header.ranges->begin();
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    if (is_floating_point(header.entries[i].spec.dtype)) ranges[i] = *next++;
  }
  return ranges;
}

}  // namespace

Snapshot::Snapshot(Vfs& vfs, const Manifest& manifest) : vfs_(vfs), manifest_(manifest) {}
Snapshot::Snapshot(Snapshot&&) noexcept = default;
Snapshot::~Snapshot() = default;

Result<std::shared_ptr<const Snapshot>> Snapshot::open(Vfs& vfs, const Manifest& manifest) {
  Snapshot snapshot(vfs, manifest);
  const auto load = [&]() -> Status {
    DF_TRY_VOID(check_readable(manifest));
    for (const ManifestFile& file : manifest.files) {
      DF_TRY(ShardFile shard, open_shard_file(vfs, manifest, file));
      snapshot.files_.push_back(std::move(shard));
    }
    DF_TRY_VOID(check_files_complete(snapshot.files_, manifest.world_size));
    return snapshot.index_keys();
  };
  if (const Status loaded = load(); !loaded) {
    return std::unexpected(loaded.error().within(checkpoint_name(manifest)));
  }
  return std::make_shared<const Snapshot>(std::move(snapshot));
}

Status Snapshot::index_keys() {
  DF_TRY(tree_, join_tree(files_));
  std::vector<Place> places;
  for (std::size_t file = 0; file < files_.size(); ++file) {
    const ShardHeader& header = files_[file].header;
    for (std::size_t entry = 0; entry < header.entries.size(); ++entry) {
      places.push_back({file, entry});
    }
  }
  const auto spec_at = [this](const Place& place) -> const TensorSpec& {
    return files_[place.file].header.entries[place.entry].spec;
  };
  std::ranges::sort(places, std::less<>(), [&](const Place& place) {
    return std::tuple<const std::string&, std::size_t, std::size_t>(spec_at(place).key, place.file,
                                                                    place.entry);
  });
  for (const Place& place : places) {
    const TensorSpec& spec = spec_at(place);
    if (specs_.empty() || specs_.back().key != spec.key) {
      specs_.push_back(spec);
      places_.push_back(place);
    } else if (!spec.box || !specs_.back().box) {
      return fail(ErrorCode::kCorrupt,
                  fmt::format("tensor {} is stored twice, in {} and {}", spec.key,
                              files_[places_.back().file].name, files_[place.file].name));
    }
  }
  return {};
}

const TensorSpec* Snapshot::find(std::string_view key) const {
  const auto found = std::ranges::lower_bound(specs_, key, std::less<>(), &TensorSpec::key);
  return found != specs_.end() && found->key == key ? &*found : nullptr;
}

std::vector<std::optional<ValueRange>> Snapshot::ranges() const {
  std::vector<std::vector<std::optional<ValueRange>>> of_files;
  for (const ShardFile& file : files_) of_files.push_back(ranges_of_entries(file.header));
  std::vector<std::optional<ValueRange>> ranges;
  for (std::size_t i = 0; i < specs_.size(); ++i) {
    const Place& place = places_[i];
    ranges.push_back(specs_[i].box ? std::nullopt : of_files[place.file][place.entry]);
  }
  return ranges;
}

std::uint64_t Snapshot::bytes() const {
  std::uint64_t sum = 0;
  for (const ShardFile& file : files_) sum += file.header.data_bytes;
  return sum;
}

Result<Snapshot::Place> Snapshot::place_of(const ReadTarget& target) const {
  const TensorSpec* spec = find(target.key);
  if (spec == nullptr) {
    return fail(ErrorCode::kNotFound, fmt::format("no tensor {}", target.key));
  }
  if (spec->box) {
    return fail(
        ErrorCode::kUnsupported,
        fmt::format("tensor {} is stored in parts; reading those is not supported", target.key));
  }
  const Place place = places_[static_cast<std::size_t>(spec - specs_.data())];
  const Extent& extent = files_[place.file].header.entries[place.entry].extent;
  if (extent.size() == target.into.size()) return place;
  return fail(ErrorCode::kMismatch, fmt::format("tensor {}: {} bytes are stored, {} wanted",
                                                target.key, extent.size(), target.into.size()));
}

Status Snapshot::read_file_pieces(const ShardFile& file, std::vector<ReadPiece> pieces,
                                  const ReadSettings& settings) const {
  const ReadPlan plan{.name = file.path,
                      .header_bytes = file.header_bytes,
                      .data_bytes = file.header.data_bytes,
                      .block_crcs = file.header.block_crcs,
                      .pieces = std::move(pieces),
                      .verify = settings.verify,
                      .thread_count = settings.thread_count,
                      .on_progress = settings.on_progress};
  const auto outcome = read_blocks(vfs_, plan);
  if (!outcome) return std::unexpected(explain_missing(vfs_, manifest_, outcome.error()));
  if (outcome->bad_blocks.empty()) return {};
  return fail(ErrorCode::kCorrupt, describe_bad_blocks(file.header, outcome->bad_blocks));
}

Status Snapshot::read(std::span<const ReadTarget> targets, const ReadSettings& settings) const {
  std::map<std::size_t, std::vector<ReadPiece>> pieces_by_file;
  for (const ReadTarget& target : targets) {
    const auto place = place_of(target);
    if (!place) return std::unexpected(place.error().within(checkpoint_name(manifest_)));
    if (target.into.empty()) continue;
    const ShardEntry& entry = files_[place->file].header.entries[place->entry];
    pieces_by_file[place->file].push_back({entry.extent, target.into});
  }
  std::uint64_t done = 0;
  for (auto& [index, pieces] : pieces_by_file) {
    std::uint64_t bytes = 0;
    for (const ReadPiece& piece : pieces) bytes += piece.source.size();
    ReadSettings shifted = settings;
    if (settings.on_progress) {
      shifted.on_progress = [&settings, done, bytes](std::uint64_t so_far) {
        settings.on_progress(done + std::min(so_far, bytes));
      };
    }
    const Status status = read_file_pieces(files_[index], std::move(pieces), shifted);
    done += bytes;
    if (status) continue;
    return std::unexpected(status.error().within(
        fmt::format("{}: file {}", checkpoint_name(manifest_), files_[index].name)));
  }
  return {};
}

Result<std::vector<Fault>> Snapshot::verify(const ReadSettings& settings) const {
  return verify_files(vfs_, manifest_, files_, settings);
}

}  // namespace deepfreeze

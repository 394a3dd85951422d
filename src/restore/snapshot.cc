#include "restore/snapshot.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "base/try.h"
#include "format/state_tree.h"
#include "restore/other_copies.h"
#include "restore/shard_file.h"
#include "storage/os_error.h"
#include "tensor/region.h"

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

// A rank's pieces stand in its files, in their order; they are taken out of there.
Result<std::vector<std::string>> join_trees(std::vector<ShardFile>& files, std::uint32_t ranks) {
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::string*> pieces;  // by rank, file
  for (ShardFile& file : files) {
    const PartName& part = file.header.identity.part;
    pieces.emplace(std::pair(part.rank, part.file), &file.header.tree);
  }
  std::vector<std::string> trees(ranks);
  for (const auto& [place, piece] : pieces) {
    std::string& tree = trees[place.first];
    if (tree.size() + piece->size() > kTreeBytesMax) {
      return fail(ErrorCode::kCorrupt, "the state tree is too large");
    }
    tree += std::exchange(*piece, {});
  }
  return trees;
}

// One range, or none, for each entry of the header.
std::vector<std::optional<ValueRange>> ranges_of_entries(const ShardHeader& header) {
  std::vector<std::optional<ValueRange>> ranges(header.entries.size());
  if (!header.ranges) return ranges;
  auto next = header.ranges->begin();
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    if (is_floating_point(header.entries[i].spec.dtype)) ranges[i] = *next++;
  }
  return ranges;
}

TensorSpec whole_of(TensorSpec spec) {
  spec.shape = Shape(whole_shape(spec));
  spec.box = std::nullopt;
  spec.global_shape.clear();
  return spec;
}

Status check_wanted(const ReadTarget& target, const Box& wanted, const TensorSpec& spec) {
  const std::size_t dimensions = spec.shape.size();
  if (wanted.offset.size() != dimensions || wanted.extent.size() != dimensions) {
    return fail(ErrorCode::kMismatch,
                fmt::format("tensor {}: a box of {} dimensions is wanted, it has {}", spec.key,
                            wanted.extent.size(), dimensions));
  }
  for (std::size_t i = 0; i < dimensions; ++i) {
    const std::uint64_t size = spec.shape[i];
    if (wanted.offset[i] <= size && wanted.extent[i] <= size - wanted.offset[i]) continue;
    return fail(ErrorCode::kMismatch,
                fmt::format("tensor {}: {} from {} on in dimension {} are wanted, it has {}",
                            spec.key, wanted.extent[i], wanted.offset[i], i, size));
  }
  const std::uint64_t bytes = element_count(wanted.extent) * dtype_bytes(spec.dtype);
  if (bytes == target.into.size()) return {};
  return fail(ErrorCode::kMismatch, fmt::format("tensor {}: {} bytes are stored, {} wanted",
                                                target.key, bytes, target.into.size()));
}

// The parts of the pieces that lie in these blocks. A full list may have left some out.
std::vector<ReadPiece> pieces_in(const std::vector<ReadPiece>& pieces,
                                 std::span<const BadBlock> blocks) {
  if (blocks.size() >= kBadBlocksMax) return pieces;
  std::vector<ReadPiece> parts;
  for (const ReadPiece& piece : pieces) {
    for (const BadBlock& block : blocks) {
      const std::uint64_t begin = std::max(piece.source.begin, block.index * kBlockBytes);
      const std::uint64_t end = std::min(piece.source.end, (block.index + 1) * kBlockBytes);
      if (begin >= end) continue;
      parts.push_back({{begin, end},
                       piece.into.subspan(begin - piece.source.begin, end - begin),
                       piece.device});
    }
  }
  return parts;
}

// One that may have a good copy outweighs those that have none.
void weigh(std::optional<Error>& counts, const Error& error) {
  const bool outweighs = may_have_good_copy(error) && counts && !may_have_good_copy(*counts);
  if (!counts || outweighs) counts = error;
}

}  // namespace

Snapshot::Snapshot(std::vector<Vfs*> tiers, const Manifest& manifest)
    : tiers_(std::move(tiers)), manifest_(manifest) {}
Snapshot::Snapshot(Snapshot&&) noexcept = default;
Snapshot::~Snapshot() = default;

Result<std::shared_ptr<const Snapshot>> Snapshot::open(std::vector<Vfs*> tiers,
                                                       const Manifest& manifest) {
  return filled(Snapshot(std::move(tiers), manifest), [&](Snapshot& snapshot) -> Status {
    for (const ManifestFile& file : manifest.files) DF_TRY_VOID(snapshot.open_file(file));
    return {};
  });
}

Result<std::shared_ptr<const Snapshot>> Snapshot::of_files(Vfs& vfs, const Manifest& manifest,
                                                           std::vector<ShardFile> files) {
  return filled(Snapshot({&vfs}, manifest), [&](Snapshot& snapshot) -> Status {
    snapshot.tier_of_.assign(files.size(), 0);
    snapshot.files_ = std::move(files);
    return {};
  });
}

Result<std::shared_ptr<const Snapshot>> Snapshot::filled(
    Snapshot snapshot, const std::function<Status(Snapshot&)>& fill) {
  const auto load = [&]() -> Status {
    DF_TRY_VOID(check_readable(snapshot.manifest_));
    DF_TRY_VOID(fill(snapshot));
    DF_TRY_VOID(check_files_complete(snapshot.files_, snapshot.manifest_.world_size));
    return snapshot.index_keys();
  };
  if (const Status loaded = load(); !loaded) {
    return std::unexpected(loaded.error().within(checkpoint_name(snapshot.manifest_)));
  }
  return std::make_shared<const Snapshot>(std::move(snapshot));
}

// From the nearest tier on which its header verifies. If there is none, the error of a tier that
// may have a good copy counts, else the nearest one's.
Status Snapshot::open_file(const ManifestFile& file) {
  std::vector<MendedRead> bad;
  std::optional<Error> counts;
  for (std::size_t tier = 0; tier < tiers_.size(); ++tier) {
    auto shard = open_shard_file(*tiers_[tier], manifest_, file);
    if (shard) {
      for (MendedRead& mended : bad) note_mended(std::move(mended));
      files_.push_back(*std::move(shard));
      tier_of_.push_back(tier);
      return {};
    }
    const Error& error = shard.error();
    weigh(counts, error);
    if (may_have_good_copy(error)) continue;
    bad.push_back({.tier = tier,
                   .file = file.name,
                   .cause = error.message(),
                   .is_gone = error.code() == ErrorCode::kGone,
                   .is_missing = error.code() == ErrorCode::kIncomplete});
  }
  if (!open_other_copy(file)) return std::unexpected(*counts);
  for (MendedRead& mended : bad) note_mended(std::move(mended));
  return {};
}

bool Snapshot::open_other_copy(const ManifestFile& file) {
  for (std::size_t tier = 0; tier < tiers_.size(); ++tier) {
    std::vector<ShardFile> copies = other_copies(*tiers_[tier], manifest_, file);
    if (copies.empty()) continue;
    files_.push_back(std::move(copies.front()));
    tier_of_.push_back(tier);
    return true;
  }
  return false;
}

void Snapshot::note_mended(MendedRead mended) const {
  const std::lock_guard lock(notes_->mutex);
  const auto is_known = [&](const MendedRead& known) {
    return known.tier == mended.tier && known.file == mended.file;
  };
  if (std::ranges::none_of(notes_->mended, is_known)) notes_->mended.push_back(std::move(mended));
}

std::vector<MendedRead> Snapshot::mended() const {
  const std::lock_guard lock(notes_->mutex);
  return notes_->mended;
}

const ShardEntry& Snapshot::entry_at(const Place& place) const {
  return files_[place.file].header.entries[place.entry];
}

std::vector<Snapshot::Place> Snapshot::sorted_places() const {
  std::vector<Place> places;
  for (std::size_t file = 0; file < files_.size(); ++file) {
    const ShardHeader& header = files_[file].header;
    for (std::size_t entry = 0; entry < header.entries.size(); ++entry) {
      places.push_back({file, entry});
    }
  }
  std::ranges::sort(places, std::less<>(), [this](const Place& place) {
    return std::tuple<const std::string&, std::size_t, std::size_t>(entry_at(place).spec.key,
                                                                    place.file, place.entry);
  });
  return places;
}

Status Snapshot::index_keys() {
  DF_TRY(trees_, join_trees(files_, manifest_.world_size));
  places_ = sorted_places();
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const TensorSpec& spec = entry_at(places_[i]).spec;
    if (!specs_.empty() && specs_.back().key == spec.key) continue;
    first_place_.push_back(i);
    specs_.push_back(whole_of(spec));
  }
  first_place_.push_back(places_.size());
  for (std::size_t i = 0; i < specs_.size(); ++i) DF_TRY_VOID(check_places(i));
  return {};
}

std::span<const Snapshot::Place> Snapshot::places_of(std::size_t spec) const {
  return std::span(places_).subspan(first_place_[spec],
                                    first_place_[spec + 1] - first_place_[spec]);
}

Status Snapshot::check_places(std::size_t spec) const {
  std::vector<const TensorSpec*> stored;
  for (const Place& place : places_of(spec)) stored.push_back(&entry_at(place).spec);
  const auto fault = fault_of_boxes(stored);
  if (!fault) return {};
  return fail(ErrorCode::kCorrupt, fmt::format("tensor {}: {}, in {}{}", specs_[spec].key, *fault,
                                               files_[places_of(spec).front().file].name,
                                               stored.size() == 1 ? "" : " and others"));
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
    const Place& place = places_of(i).front();
    ranges.push_back(entry_at(place).spec.box ? std::nullopt : of_files[place.file][place.entry]);
  }
  return ranges;
}

const std::string& Snapshot::tree(std::uint32_t rank) const {
  static const std::string kNone;
  return rank < trees_.size() ? trees_[rank] : kNone;
}

std::uint64_t Snapshot::bytes() const {
  std::uint64_t sum = 0;
  for (const ShardFile& file : files_) sum += file.header.data_bytes;
  return sum;
}

Status Snapshot::add_pieces(const ReadTarget& target, PiecesByFile& pieces) const {
  const TensorSpec* spec = find(target.key);
  if (spec == nullptr) {
    return fail(ErrorCode::kNotFound, fmt::format("no tensor {}", target.key));
  }
  const Box wanted = target.box.value_or(stored_box(*spec));
  DF_TRY_VOID(check_wanted(target, wanted, *spec));
  const std::size_t element = dtype_bytes(spec->dtype);
  for (const Place& place : places_of(static_cast<std::size_t>(spec - specs_.data()))) {
    const ShardEntry& entry = entry_at(place);
    const Box stored = stored_box(entry.spec);
    const auto common = intersect(stored, wanted);
    if (!common) continue;
    for (const BoxRun& run : runs_of(*common, stored, wanted)) {
      const std::uint64_t begin = entry.extent.begin + run.from * element;
      const std::uint64_t bytes = run.elements * element;
      pieces[place.file].push_back(
          {{begin, begin + bytes}, target.into.subspan(run.to * element, bytes), target.device});
    }
  }
  return {};
}

// Each tier in turn is asked for the blocks that none before it could give.
Status Snapshot::read_file_pieces(std::size_t index, std::vector<ReadPiece> pieces,
                                  const ReadSettings& settings) const {
  const ShardFile& file = files_[index];
  ReadPlan plan{.name = file.path,
                .header_bytes = file.header_bytes,
                .data_bytes = file.header.data_bytes,
                .block_crcs = file.header.block_crcs,
                .pieces = std::move(pieces),
                .verify = settings.verify,
                .thread_count = settings.thread_count,
                .on_progress = settings.on_progress,
                .devices = settings.devices};
  std::vector<MendedRead> bad;
  std::optional<Error> counts;  // as in open_file()
  for (std::size_t tier = tier_of_[index]; tier < tiers_.size(); ++tier) {
    const auto outcome = read_blocks(*tiers_[tier], plan);
    if (outcome && outcome->bad_blocks.empty()) {
      for (MendedRead& mended : bad) note_mended(std::move(mended));
      return {};
    }
    const Error error =
        outcome ? Error(ErrorCode::kCorrupt, describe_bad_blocks(file.header, outcome->bad_blocks))
                : explain_missing(*tiers_[tier], manifest_, outcome.error());
    weigh(counts, error);
    if (may_have_good_copy(error)) continue;
    bad.push_back({.tier = tier,
                   .file = file.name,
                   .cause = error.message(),
                   .is_gone = error.code() == ErrorCode::kGone,
                   .is_missing = error.code() == ErrorCode::kIncomplete});
    if (outcome) plan.pieces = pieces_in(plan.pieces, outcome->bad_blocks);
    plan.on_progress = {};  // these bytes have been counted
  }
  if (!read_other_copies(index, std::move(plan))) return std::unexpected(*counts);
  for (MendedRead& mended : bad) note_mended(std::move(mended));
  return {};
}

// Two names may be of one file on the disk, so all are tried.
bool Snapshot::read_other_copies(std::size_t index, ReadPlan plan) const {
  const ManifestFile& file = manifest_.files[index];
  for (Vfs* tier : tiers_) {
    for (const ShardFile& copy : other_copies(*tier, manifest_, file)) {
      plan.name = copy.path;
      const auto outcome = read_blocks(*tier, plan);
      if (!outcome) continue;
      if (outcome->bad_blocks.empty()) return true;
      plan.pieces = pieces_in(plan.pieces, outcome->bad_blocks);
    }
  }
  return false;
}

Status Snapshot::read(std::span<const ReadTarget> targets, const ReadSettings& settings) const {
  PiecesByFile pieces_by_file;
  for (const ReadTarget& target : targets) {
    const Status added = add_pieces(target, pieces_by_file);
    if (!added) return std::unexpected(added.error().within(checkpoint_name(manifest_)));
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
    const Status status = read_file_pieces(index, std::move(pieces), shifted);
    done += bytes;
    if (status) continue;
    return std::unexpected(status.error().within(
        fmt::format("{}: file {}", checkpoint_name(manifest_), files_[index].name)));
  }
  return {};
}

Result<std::vector<Fault>> Snapshot::verify(const ReadSettings& settings) const {
  return verify_files(*tiers_.front(), manifest_, files_, settings);
}

}  // namespace deepfreeze

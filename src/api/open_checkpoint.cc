#include "api/open_checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <set>
#include <utility>

#include "base/try.h"
#include "device/cuda_device.h"
#include "manifest/given_tags.h"
#include "manifest/history.h"
#include "manifest/ranking.h"
#include "manifest/retention.h"
#include "manifest/run_file.h"
#include "manifest/sealed_parts.h"
#include "object/open_object.h"
#include "storage/read_only.h"

namespace deepfreeze {
namespace {

// The run and the committed manifest that `info` names, read anew, on each tier that has it.
struct Located {
  std::vector<std::unique_ptr<Vfs>> tiers;  // nearest first
  Manifest manifest;
  [[nodiscard]] std::vector<Vfs*> views() const {
    std::vector<Vfs*> views;
    for (const auto& tier : tiers) views.push_back(tier.get());
    return views;
  }
};

std::string run_of(const std::string& attempt_path) {
  return attempt_path.substr(0, attempt_path.rfind('/'));
}

// It was listed, so it was there.
Error as_gone(Error error) {
  if (error.code() != ErrorCode::kNotFound) return error;
  return {ErrorCode::kGone, error.message(), error.os_errno()};
}

// Without a list of the run's attempts, which takes long if there are thousands; but the attempts
// tell the id if its own record is lost.
Result<std::string> run_id_of(Vfs& vfs) {
  if (auto record = read_run_file(vfs)) return std::move(record->run_id);
  DF_TRY(RunListing listing, read_run(vfs));
  return std::move(listing.run.run_id);
}

Result<Located> locate_at(const std::string& path, const AttemptName& name) {
  DF_TRY(auto vfs, open_vfs(run_of(path)));
  DF_TRY(const std::string run_id, run_id_of(*vfs));
  auto manifest = read_manifest(*vfs, name, run_id);
  if (!manifest) return std::unexpected(as_gone(std::move(manifest).error()));
  if (manifest->outcome != Outcome::kCommitted) {
    return fail(ErrorCode::kGone, "open " + path + ": the attempt was aborted");
  }
  Located located{.tiers = {}, .manifest = *std::move(manifest)};
  located.tiers.push_back(std::move(vfs));
  return located;
}

// A tier that can't be asked now. It may have the good copy of a file: if no other tier has one,
// its error counts, and not theirs.
class UnreachedTier final : public ReadOnlyVfs {
 public:
  UnreachedTier(std::string run, Error error) : run_(std::move(run)), error_(std::move(error)) {}
  Result<std::unique_ptr<File>> open_read(std::string_view /*name*/, Access /*access*/) override {
    return std::unexpected(error_);
  }
  Result<std::vector<DirEntry>> list(std::string_view /*name*/) override {
    return std::unexpected(error_);
  }
  [[nodiscard]] std::string path_of(std::string_view name) const override {
    return fmt::format("{}/{}", run_, name);
  }

 private:
  const std::string run_;
  const Error error_;
};

// A tier that has no good copy is left out while another one has it.
Result<Located> locate(const CheckpointInfo& info) {
  const AttemptName name{info.step, info.attempt_id};
  Result<Located> located = locate_at(info.path, name);
  std::vector<std::unique_ptr<Vfs>> unreached;
  std::optional<Error> counts;
  const auto note = [&](const std::string& copy, const Error& error) {
    if (!may_have_good_copy(error)) return;
    unreached.push_back(std::make_unique<UnreachedTier>(run_of(copy), error));
    counts = error;
  };
  if (!located) note(info.path, located.error());
  for (const std::string& copy : info.copies) {
    auto farther = locate_at(copy, name);
    if (!farther) {
      note(copy, farther.error());
    } else if (!located) {
      located = std::move(farther);
    } else if (farther->manifest == located->manifest) {
      located->tiers.push_back(std::move(farther->tiers.front()));
    }
  }
  if (!located) return counts ? std::unexpected(*counts) : std::move(located);
  std::ranges::move(unreached, std::back_inserter(located->tiers));
  return located;
}

// kNotFound is for a run without checkpoints: a caller may start afresh on it.
Error as_mismatch(const Error& error) {
  if (error.code() != ErrorCode::kNotFound) return error;
  return {ErrorCode::kMismatch, error.message()};
}

CheckpointInfo describe(Vfs& vfs, const Manifest& manifest) {
  const Point& point = manifest.point;
  return {.generation = point.generation,
          .step = point.step,
          .save_index = point.save_index,
          .attempt_id = point.attempt_id,
          .wall_micros = manifest.annotations.wall_micros,
          .bytes = stored_bytes(manifest),
          .world_size = manifest.world_size,
          .path = vfs.path_of(attempt_dir_name({point.step, point.attempt_id})),
          .metrics = manifest.annotations.metrics,
          .tags = manifest.annotations.tags,
          .environment = manifest.annotations.environment,
          .non_finite = manifest.non_finite,
          .diverged = manifest.diverged};
}

// If the header can't tell either, the attempt is taken for the newest of its step.
CheckpointInfo describe_faulty(Vfs& vfs, const RunListing& listing, const AttemptState& attempt) {
  CheckpointInfo info{.generation = highest_generation(listing),
                      .step = attempt.name.step,
                      .attempt_id = attempt.name.attempt_id,
                      .path = vfs.path_of(attempt_dir_name(attempt.name)),
                      .fault = attempt.fault->message()};
  if (const auto identity = find_identity(vfs, attempt.name)) {
    info.generation = identity->generation;
    info.save_index = identity->save_index;
    info.world_size = identity->part.world_size;
  }
  return info;
}

// Work given to these streams may still use the memory that is about to be written.
Status wait_for_streams(std::span<const RestoreTarget> targets, CudaDevices& devices) {
  std::set<std::pair<std::int32_t, std::uintptr_t>> waited;
  for (const RestoreTarget& target : targets) {
    if (target.device == kHostMemory) continue;
    if (!waited.emplace(target.device, target.stream).second) continue;
    DF_TRY(const auto device, devices.get(target.device));
    DF_TRY_VOID(device->wait_for(target.stream));
  }
  return {};
}

Status fill(Checkpointer& run, const CheckpointInfo& info, std::span<const RestoreTarget> targets) {
  DF_TRY(const OpenCheckpoint opened, run.open_checkpoint(info));
  DF_TRY_VOID(opened.read(targets));
  run.heal(info, opened.mended());
  return {};
}

// Empty if none of `infos` verifies. kGone if one was deleted meanwhile.
Result<std::optional<CheckpointInfo>> fill_newest(Checkpointer& run,
                                                  std::span<const CheckpointInfo> infos,
                                                  std::span<const RestoreTarget> targets,
                                                  RestoreReport& report) {
  for (const CheckpointInfo& info : infos) {
    const auto is_same = [&](const auto& tried) {
      return tried.first.attempt_id == info.attempt_id;
    };
    if (std::ranges::any_of(report.fell_back_from, is_same)) continue;
    const Status filled =
        run.agree(attempt_dir_name({info.step, info.attempt_id}), fill(run, info, targets));
    if (filled) return info;
    if (!is_fault(filled.error())) return std::unexpected(as_mismatch(filled.error()));
    report.fell_back_from.emplace_back(info, filled.error());
  }
  return std::nullopt;
}

}  // namespace

std::vector<CheckpointInfo> describe_all(Vfs& vfs, const RunListing& listing) {
  std::vector<CheckpointInfo> infos;
  for (const AttemptState& attempt : listing.attempts) {
    if (attempt.committed()) {
      infos.push_back(describe(vfs, *attempt.manifest));
      infos.back().tags = tags_of(attempt);
    }
    if (attempt.fault) infos.push_back(describe_faulty(vfs, listing, attempt));
  }
  for (CheckpointInfo& info : infos) info.abandoned = !on_current_line(listing, point_of(info));
  std::ranges::sort(infos, [](const CheckpointInfo& a, const CheckpointInfo& b) {
    return older(point_of(b), point_of(a));
  });
  return infos;
}

std::vector<CheckpointInfo> describe_tiers(const TieredListing& found, Vfs& near,
                                           std::span<Vfs* const> far) {
  std::vector<Vfs*> views = {&near};
  views.insert(views.end(), far.begin(), far.end());
  std::vector<CheckpointInfo> infos = describe_all(near, found.merged);
  for (CheckpointInfo& info : infos) {
    const AttemptName name{info.step, info.attempt_id};
    std::vector<std::string> paths;
    for (std::size_t tier = 0; tier < views.size(); ++tier) {
      if (!is_committed_in(found.tiers[tier], name)) continue;
      paths.push_back(views[tier]->path_of(attempt_dir_name(name)));
    }
    if (paths.empty()) continue;  // its records are faulty wherever it lies
    info.path = std::move(paths.front());
    info.copies.assign(paths.begin() + 1, paths.end());
  }
  return infos;
}

Point point_of(const CheckpointInfo& info) {
  return {.generation = info.generation,
          .step = info.step,
          .save_index = info.save_index,
          .attempt_id = info.attempt_id};
}

struct OpenCheckpoint::State {
  CheckpointInfo info;
  std::shared_ptr<const void> keeper;  // of the tiers; may be null
  std::vector<std::unique_ptr<Vfs>> tiers;
  std::size_t shares = 0;  // of the nearest tiers: they have the files of some ranks each
  std::shared_ptr<const Snapshot> snapshot;  // borrows the tiers

  [[nodiscard]] std::string path_on(std::size_t tier) const {
    return tiers[tier]->path_of(attempt_dir_name({info.step, info.attempt_id}));
  }
};

const CheckpointInfo& OpenCheckpoint::info() const { return state_->info; }
const std::vector<TensorSpec>& OpenCheckpoint::tensors() const {
  return state_->snapshot->tensors();
}
std::vector<std::optional<ValueRange>> OpenCheckpoint::ranges() const {
  return state_->snapshot->ranges();
}
const std::string& OpenCheckpoint::objects(std::uint32_t rank) const {
  return state_->snapshot->tree(rank);
}

Status OpenCheckpoint::read(std::span<const RestoreTarget> targets, bool verify,
                            const OnProgress& on_progress) const {
  std::vector<ReadTarget> wanted;
  wanted.reserve(targets.size());
  for (const RestoreTarget& target : targets) {
    wanted.push_back({target.key, target.into, target.box, target.device});
  }
  CudaDevices devices;
  DF_TRY_VOID(wait_for_streams(targets, devices));
  return state_->snapshot->read(wanted, {.verify = verify,
                                         .thread_count = kReadThreads,
                                         .on_progress = on_progress,
                                         .devices = &devices});
}

std::vector<MendedFile> OpenCheckpoint::mended() const {
  std::vector<MendedFile> files;
  for (const MendedRead& mended : state_->snapshot->mended()) {
    // Else a node would get the files of all others.
    const bool is_other_nodes = mended.is_missing && mended.tier < state_->shares;
    if (mended.is_gone || is_other_nodes) continue;
    files.push_back({mended.file, state_->path_on(mended.tier), mended.cause});
  }
  return files;
}

std::map<std::string, std::string> OpenCheckpoint::sources() const {
  std::map<std::string, std::string> sources;
  const auto& files = state_->snapshot->manifest().files;
  for (std::size_t i = 0; i < files.size(); ++i) {
    sources.emplace(files[i].name, state_->path_on(state_->snapshot->tier_of(i)));
  }
  return sources;
}

Result<std::vector<CheckpointInfo>> list_checkpoints(const std::filesystem::path& run) {
  DF_TRY(const std::string root, absolute_place(run.string()));
  DF_TRY(const auto vfs, open_vfs(root));
  DF_TRY(const RunListing listing, read_run(*vfs));
  return describe_all(*vfs, listing);
}

Result<std::vector<CheckpointInfo>> list_checkpoints(const std::filesystem::path& run,
                                                     std::span<const std::string> tiers) {
  DF_TRY(const std::string root, absolute_place(run.string()));
  DF_TRY(const auto near, open_vfs(root));
  std::vector<std::unique_ptr<Vfs>> opened;
  std::vector<Vfs*> far;
  for (const std::string& tier : tiers) {
    DF_TRY(const std::string place, absolute_place(tier));
    DF_TRY(auto vfs, open_vfs(place));
    far.push_back(vfs.get());
    opened.push_back(std::move(vfs));
  }
  DF_TRY(const TieredListing found, read_tiers(*near, far));
  return describe_tiers(found, *near, far);
}

Result<std::optional<Keep>> recorded_keep(const std::filesystem::path& run) {
  DF_TRY(const std::string root, absolute_place(run.string()));
  DF_TRY(const auto vfs, open_vfs(root));
  DF_TRY(const RunListing listing, read_run(*vfs));
  return recorded_keep(listing);
}

Result<CheckpointInfo> best_of(std::span<const CheckpointInfo> infos, const BestBy& by,
                               const std::optional<Keep::Best>& rule) {
  std::vector<Measured> measured;
  for (const CheckpointInfo& info : infos) {
    measured.push_back({.metrics = &info.metrics,
                        .on_line = !info.abandoned,
                        .non_finite = info.non_finite.value_or(0) > 0});
  }
  DF_TRY(const std::size_t place, place_of_best(measured, by, rule));
  return infos[place];
}

namespace {

Result<OpenCheckpoint> open_located(const CheckpointInfo& info, Located located, std::size_t shares,
                                    std::shared_ptr<const void> keeper) {
  auto state = std::make_shared<OpenCheckpoint::State>();
  state->info = info;
  state->keeper = std::move(keeper);
  state->shares = shares;
  DF_TRY(state->snapshot, Snapshot::open(located.views(), located.manifest));
  state->tiers = std::move(located.tiers);
  return OpenCheckpoint(std::move(state));
}

// A node that has joined since has no directory of the attempt.
Result<Located> locate_on_nodes(const CheckpointInfo& info, Vfs& others) {
  auto located = locate(info);
  if (located) return located;
  auto manifest = read_manifest(others, {info.step, info.attempt_id}, "");
  if (!manifest) return std::unexpected(as_gone(std::move(manifest).error()));
  return Located{.tiers = {}, .manifest = *std::move(manifest)};
}

}  // namespace

Result<OpenCheckpoint> open_checkpoint(const CheckpointInfo& info) {
  DF_TRY(Located located, locate(info));
  return open_located(info, std::move(located), 0, nullptr);
}

Result<OpenCheckpoint> open_on_nodes(const CheckpointInfo& info, const std::string& near,
                                     CheckpointFiles files, std::shared_ptr<const void> keeper) {
  DF_TRY(Located located, locate_on_nodes(info, *files.others));
  const std::string directory = attempt_dir_name({info.step, info.attempt_id});
  auto& tiers = located.tiers;
  if (!tiers.empty() && tiers.front()->path_of(directory) == near + "/" + directory) {
    tiers.insert(tiers.begin() + 1, std::move(files.others));
  } else {
    // Without a manifest this node can't tell a missing file from a deleted checkpoint: others can.
    DF_TRY(auto own, open_vfs(near));
    tiers.insert(tiers.begin(), std::move(own));
    tiers.insert(tiers.begin(), std::move(files.others));
  }
  std::size_t shares = 2;
  if (files.rebuild) {
    tiers.insert(tiers.begin() + 2, files.rebuild(located.manifest));
    ++shares;
  }
  return open_located(info, std::move(located), shares, std::move(keeper));
}

Result<std::vector<FaultInfo>> verify_checkpoint(const CheckpointInfo& info,
                                                 const OnProgress& on_progress) {
  DF_TRY(const Located located, locate(info));
  DF_TRY(
      const auto faults,
      verify_attempt(*located.tiers.front(), located.manifest,
                     {.verify = true, .thread_count = kReadThreads, .on_progress = on_progress}));
  std::vector<FaultInfo> infos;
  for (const Fault& fault : faults) {
    infos.push_back({fault.file, fault.cause, fault.blocks, fault.tensors});
  }
  return infos;
}

Status delete_checkpoint(const CheckpointInfo& info) {
  std::vector<std::string> paths = {info.path};
  paths.insert(paths.end(), info.copies.begin(), info.copies.end());
  // The nearest first: from there a flush would bring it back to the others.
  for (const std::string& path : paths) {
    DF_TRY(const auto vfs, open_vfs(run_of(path)));
    DF_TRY_VOID(delete_checkpoint(*vfs, {info.step, info.attempt_id}));
  }
  return {};
}

Result<RestoreReport> restore_newest(Checkpointer& run, std::span<const RestoreTarget> targets) {
  RestoreReport report;
  DF_TRY(const auto filled, list_anew_while_gone([&]() -> Result<std::optional<CheckpointInfo>> {
           DF_TRY(const auto infos, run.candidates());
           return fill_newest(run, infos, targets, report);
         }));
  if (filled) {
    report.restored = *filled;
    DF_TRY_VOID(run.continue_from(*filled));
    return report;
  }
  if (report.fell_back_from.empty()) {
    return fail(ErrorCode::kNotFound, "restore: nothing was ever committed");
  }
  return std::unexpected(report.fell_back_from.front().second.within("restore: no step verifies"));
}

}  // namespace deepfreeze

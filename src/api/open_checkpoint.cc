#include "api/open_checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "base/try.h"
#include "device/cuda_device.h"
#include "manifest/history.h"
#include "manifest/ranking.h"
#include "manifest/retention.h"
#include "manifest/sealed_parts.h"
#include "storage/posix_vfs.h"

namespace deepfreeze {
namespace {

std::uint64_t total_bytes(const Manifest& manifest) {
  std::uint64_t bytes = 0;
  for (const ManifestFile& file : manifest.files) bytes += file.bytes;
  return bytes;
}

// The run and the committed manifest that `info` names, read anew.
struct Located {
  std::unique_ptr<Vfs> vfs;
  Manifest manifest;
};

// It was listed, so it was there.
Error as_gone(Error error) {
  if (error.code() != ErrorCode::kNotFound) return error;
  return {ErrorCode::kGone, error.message(), error.os_errno()};
}

Result<Located> locate(const CheckpointInfo& info) {
  DF_TRY(auto vfs, open_posix_vfs(std::filesystem::path(info.path).parent_path()));
  DF_TRY(const RunListing listing, read_run(*vfs));
  auto manifest = read_manifest(*vfs, {info.step, info.attempt_id}, listing.run.run_id);
  if (!manifest) return std::unexpected(as_gone(std::move(manifest).error()));
  if (manifest->outcome != Outcome::kCommitted) {
    return fail(ErrorCode::kGone, "open " + info.path + ": the attempt was aborted");
  }
  return Located{std::move(vfs), *std::move(manifest)};
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
          .bytes = total_bytes(manifest),
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

Status fill(const CheckpointInfo& info, std::span<const RestoreTarget> targets) {
  DF_TRY(const OpenCheckpoint opened, open_checkpoint(info));
  return opened.read(targets);
}

// Empty if none of `infos` verifies. kGone if one was deleted meanwhile.
Result<std::optional<CheckpointInfo>> fill_newest(Checkpointer& run,
                                                  std::span<const CheckpointInfo> infos,
                                                  std::span<const RestoreTarget> targets,
                                                  RestoreReport& report) {
  for (const CheckpointInfo& info : infos) {
    const auto is_same = [&](const auto& tried) { return tried.first.path == info.path; };
    if (std::ranges::any_of(report.fell_back_from, is_same)) continue;
    const Status filled =
        run.agree(attempt_dir_name({info.step, info.attempt_id}), fill(info, targets));
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
    if (attempt.committed()) infos.push_back(describe(vfs, *attempt.manifest));
    if (attempt.fault) infos.push_back(describe_faulty(vfs, listing, attempt));
  }
  for (CheckpointInfo& info : infos) info.abandoned = !on_current_line(listing, point_of(info));
  std::ranges::sort(infos, [](const CheckpointInfo& a, const CheckpointInfo& b) {
    return older(point_of(b), point_of(a));
  });
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
  std::unique_ptr<Vfs> vfs;
  std::shared_ptr<const Snapshot> snapshot;  // borrows *vfs
};

const CheckpointInfo& OpenCheckpoint::info() const { return state_->info; }
const std::vector<TensorSpec>& OpenCheckpoint::tensors() const {
  return state_->snapshot->tensors();
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

Result<std::vector<CheckpointInfo>> list_checkpoints(const std::filesystem::path& run) {
  DF_TRY(const std::filesystem::path root, absolute_path(run));
  DF_TRY(const auto vfs, open_posix_vfs(root));
  DF_TRY(const RunListing listing, read_run(*vfs));
  return describe_all(*vfs, listing);
}

Result<std::optional<Keep>> recorded_keep(const std::filesystem::path& run) {
  DF_TRY(const auto vfs, open_posix_vfs(run));
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

Result<OpenCheckpoint> open_checkpoint(const CheckpointInfo& info) {
  DF_TRY(Located located, locate(info));
  auto state = std::make_shared<OpenCheckpoint::State>();
  state->info = info;
  state->vfs = std::move(located.vfs);
  DF_TRY(state->snapshot, Snapshot::open(*state->vfs, located.manifest));
  return OpenCheckpoint(std::move(state));
}

Result<std::vector<FaultInfo>> verify_checkpoint(const CheckpointInfo& info,
                                                 const OnProgress& on_progress) {
  DF_TRY(const Located located, locate(info));
  DF_TRY(
      const auto faults,
      verify_attempt(*located.vfs, located.manifest,
                     {.verify = true, .thread_count = kReadThreads, .on_progress = on_progress}));
  std::vector<FaultInfo> infos;
  for (const Fault& fault : faults) {
    infos.push_back({fault.file, fault.cause, fault.blocks, fault.tensors});
  }
  return infos;
}

Status delete_checkpoint(const CheckpointInfo& info) {
  DF_TRY(const auto vfs, open_posix_vfs(std::filesystem::path(info.path).parent_path()));
  return delete_checkpoint(*vfs, {info.step, info.attempt_id});
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

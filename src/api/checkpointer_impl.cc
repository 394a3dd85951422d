#include "api/checkpointer_impl.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <exception>

#include "agreement/tensor_checksums.h"
#include "api/open_checkpoint.h"
#include "base/log.h"
#include "base/named_threads.h"
#include "base/scope_exit.h"
#include "base/trace.h"
#include "base/try.h"
#include "manifest/claims.h"
#include "manifest/history.h"
#include "manifest/retention.h"
#include "manifest/several_ranks.h"
#include "storage/posix_vfs.h"
#include "tiering/merged_run.h"

namespace deepfreeze {
namespace {

constexpr std::chrono::milliseconds kLookMax = std::chrono::seconds(5);

void note_sizes(const SavePlan& plan, SaveHandle::State& handle) {
  handle.status.bytes = plan.data_bytes();
  for (const CaptureItem& item : plan.items) {
    // Bytes on a device arrive later, guarded or not: a stream waits for them, no thread.
    const bool is_later = item.guard != kUnguarded || item.device != kHostMemory;
    if (is_later) handle.status.guarded_bytes += item.source.size();
  }
}

// Errors of the request, not of the machine: no handle is made for them.
bool is_callers_mistake(const Error& error) {
  switch (error.code()) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kEncode:
    case ErrorCode::kMismatch:
    case ErrorCode::kBusy:
      return true;
    default:
      return false;
  }
}

}  // namespace

Error out_of_memory(const std::exception& cause) {
  return {ErrorCode::kNoSpace,
          fmt::format("the system refuses memory or threads: {}", cause.what())};
}

void Checkpointer::Impl::work() {
  enter_own_thread("df-save");
  while (const auto job = jobs.pop()) {
    if (agent) agent->keep_up();
    run_job(**job);
    if (trace_file) trace_file->flush();
    const std::lock_guard lock(mutex);
    --jobs_unfinished;
    changed.notify_all();
  }
}

// The trainer must outlive whatever happens here, a refused allocation included.
void Checkpointer::Impl::run_job(SaveJob& job) {
  bool holds_arena = true;  // afterwards it is another save's
  const auto free_arena = [&] {
    if (std::exchange(holds_arena, false)) capturer.free_arena();
  };
  bool committed = false;
  try {
    const Status written = job.write();
    capturer.keep_image(job.kept_image());
    free_arena();
    committed = job.settle(written);
  } catch (const std::exception& cause) {
    job.settle_failed(out_of_memory(cause));
    free_arena();
  }
  note_end(committed, job.handle());
  if (!committed) watch->forget(job.attempt());
  if (parity) tell_parity(job, committed);
  if (committed && leads()) {
    watch->generation = job.generation();
    collect_or_warn(job);
  }
  if (committed && flusher) flusher->wake();
  if (!committed && !ranks.is_alone()) leaves_aborted = true;
}

void Checkpointer::Impl::note_end(bool committed,
                                  const std::shared_ptr<SaveHandle::State>& handle) {
  const std::lock_guard lock(mutex);
  has_committed = has_committed || committed;
  if (has_committed) {
    first_failed.reset();
  } else if (!first_failed) {
    first_failed = handle;
  }
}

// A program that checks no handle must not end as if all were well without a single checkpoint.
Status Checkpointer::Impl::check_any_saved() {
  const std::lock_guard lock(mutex);
  if (!first_failed) return {};
  const std::lock_guard handle_lock(first_failed->mutex);
  if (first_failed->is_told || !first_failed->status.error) return {};
  return std::unexpected(first_failed->status.error->within(
      fmt::format("{}: no save has succeeded. The first", vfs->path_of(""))));
}

Status Checkpointer::Impl::check_may_save(std::string_view operation) const {
  if (!options.read_only) return {};
  return fail(ErrorCode::kInvalidArgument, fmt::format("{}: {} was opened read-only, for restoring",
                                                       operation, vfs->path_of("")));
}

void Checkpointer::Impl::tell_parity(const SaveJob& job, bool committed) {
  try {
    committed ? parity->committed(job.attempt()) : parity->forget(job.attempt());
  } catch (const std::exception& cause) {
    log_warning(out_of_memory(cause).within("protect").message());
  }
}

// The save itself is durable, whatever becomes of older ones.
void Checkpointer::Impl::collect_or_warn(const SaveJob& job) {
  try {
    collect(job.generation());
  } catch (const std::exception& cause) {
    log_warning("old checkpoints stay: " + out_of_memory(cause).message());
  }
}

// Only after a commit of our own, so nothing goes before a newer step is durable; and only while
// the run is ours, because the next owner's rules may keep more.
void Checkpointer::Impl::collect(std::uint64_t generation) {
  const trace::Span span("collect garbage");
  const Keep& keep = options.keep;
  const bool left_aborted = leaves_aborted.exchange(false);  // a later one is for the next commit
  if (!keep.last && !keep.every && !keep.best && !left_aborted) return;
  bool is_collected = false;
  const ScopeExit try_again([&] {
    if (left_aborted && !is_collected) leaves_aborted = true;
  });
  if (!check_not_fenced(*vfs, generation)) return;
  const auto held = [this](const RunListing& listing) {
    auto names = flusher ? flusher->held(listing) : std::vector<AttemptName>();
    std::ranges::copy(parity_hold->held(), std::back_inserter(names));
    return names;
  };
  const auto collected = collect_garbage(*vfs, keep, {.held = held});
  is_collected = collected.has_value();
  if (!is_collected) log_warning("old checkpoints stay: " + collected.error().message());
  if (is_collected && flusher) flusher->note_deleted(collected->removed);
}

// The flusher has a view of the run's directory of its own: ours may be opened anew, if the
// directory is replaced, and then nobody else may use it.
std::shared_ptr<Flusher> Checkpointer::Impl::start_flusher(std::vector<FarTier> far) {
  for (const FarTier& tier : far) far_views.push_back(&tier.store->view());
  if (far.empty()) return nullptr;
  if (options.read_only) {
    unwritten_tiers = std::move(far);
    return nullptr;
  }
  Flusher::Settings settings;
  settings.open_near = [root = vfs->path_of("")] { return open_posix_vfs(root); };
  settings.near_keep = options.keep;
  settings.held = [hold = parity_hold] { return hold->held(); };
  settings.tiers = std::move(far);
  settings.commits = leads();
  settings.share = is_on_nodes() ? FlushShare::kOfNode : FlushShare::kAll;
  settings.deletes_far = ranks.commits();
  settings.generation = [watch = watch] { return watch->generation.load(); };
  settings.awaited = [watch = watch](std::size_t tier) { return watch->awaited(tier); };
  settings.tell = [watch = watch](const AttemptName& name, std::size_t tier, Flusher::Fate fate,
                                  std::string_view why) { watch->tell(name, tier, fate, why); };
  return Flusher::start(std::move(settings));
}

// The run may have gone on from another machine meanwhile.
Status Checkpointer::Impl::adopt() {
  if (options.read_only) return {};
  for (Vfs* tier : far_views) DF_TRY_VOID(adopt_history(*vfs, *tier));
  return {};
}

// A tier that can't be read now will fence this process later, if it must.
void Checkpointer::Impl::settle_for_claim() {
  wait_for_jobs();
  const Status adopted = adopt();
  if (!adopted) log_warning("claim: " + adopted.error().message());
}

// Nothing is done about a checkpoint that was deleted meanwhile.
void Checkpointer::Impl::heal(const CheckpointInfo& info, std::span<const MendedFile> mended) {
  std::vector<Vfs*> views = {vfs.get()};
  views.insert(views.end(), far_views.begin(), far_views.end());
  const AttemptName name{info.step, info.attempt_id};
  for (const MendedFile& one : mended) {
    for (std::size_t tier = 0; tier < views.size(); ++tier) {
      if (views[tier]->path_of(attempt_dir_name(name)) != one.path) continue;
      const auto manifest = read_manifest(*views[tier], name, "");
      if (!manifest) continue;
      const auto file = std::ranges::find(manifest->files, one.file, &ManifestFile::name);
      if (file == manifest->files.end()) continue;
      flusher->mend({.manifest = *manifest, .file = *file, .bad = tier});
    }
  }
}

std::vector<TierStatus> Checkpointer::Impl::tier_statuses() const {
  std::vector<TierStatus> statuses;
  for (TierReport& report : flusher->reports()) {
    TierStatus status = {.path = std::move(report.place),
                         .waiting = report.waiting,
                         .bytes_sent = report.bytes_sent,
                         .bytes_total = report.bytes_total,
                         .stored_total = report.stored_total,
                         .committed = report.committed,
                         .left_out = report.left_out,
                         .saves_refused = report.saves_refused,
                         .failures = report.failures,
                         .error = std::move(report.error)};
    if (report.copying) status.step = report.copying->step;
    statuses.push_back(std::move(status));
  }
  return statuses;
}

// A tier that is down must not keep the program from ending.
void Checkpointer::Impl::drain_or_warn() {
  if (!flusher) return;
  // Rank 0 copies; the others only look, and need not wait for as long.
  const auto patience = leads() ? kWaitMax : kLookMax;
  const Status drained =
      flusher->drain(std::min(options.drain_wait_max, patience), Flusher::OnFailure::kGiveUp);
  if (!drained) log_warning(drained.error().within("close").message());
}

void Checkpointer::Impl::wait_idle() {
  capturer.discard_early();
  capturer.fence_all();  // the waiting thread may as well copy
  wait_for_jobs();
}

void Checkpointer::Impl::wait_for_jobs() {
  std::unique_lock lock(mutex);
  changed.wait(lock, [this] { return jobs_unfinished == 0; });
}

// Nobody is left to confirm the save, and the worker waits for that.
void Checkpointer::Impl::fail_unconfirmed() {
  const auto job = last_job.lock();
  if (!job || !job->awaits_confirmation()) return;
  std::ignore = job->handle()->wait_copied();
  job->capture_failed(Error(ErrorCode::kCancelled, "closed before the save was confirmed"));
}

bool Checkpointer::Impl::take_arena(Monotonic::time_point deadline) {
  if (capturer.has_early()) return true;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Monotonic::now());
  return capturer.take_arena(std::max(left, std::chrono::milliseconds{0}));
}

// The save before, unless it has ended.
std::optional<SaveBytes> Checkpointer::Impl::in_flight() {
  const auto job = last_job.lock();
  if (!job) return std::nullopt;
  {
    const std::lock_guard lock(mutex);
    if (jobs_unfinished == 0) return std::nullopt;
  }
  const std::lock_guard lock(job->handle()->mutex);
  return SaveBytes{.name = job->attempt(), .bytes = job->handle()->status.bytes};
}

// kBusy: there is none on the disk, or the arena is still another save's.
Status Checkpointer::Impl::take_room(const SaveRequest& request) {
  const bool waits = options.on_busy == OnBusy::kBlock;
  const auto patience =
      waits ? std::min(options.busy_wait_max, kWaitMax) : std::chrono::milliseconds{0};
  const auto deadline = Monotonic::now() + patience;
  if (room.is_bounded()) {
    std::uint64_t bytes = 0;
    for (const Tensor& tensor : request.tensors) bytes += tensor.data.size();
    DF_TRY_VOID(room.await(*vfs, bytes, [this] { return in_flight(); }, deadline));
  }
  if (take_arena(deadline)) return {};
  return fail(ErrorCode::kBusy, "the save before it did not finish in time");
}

// Takes the arena if this rank is ready and there is room.
SaveVote Checkpointer::Impl::prepare(const SaveRequest& request) {
  SaveVote vote{.run_id = writer.agreed_run_id(), .step = request.step};
  try {
    vote.ready = planner.accept(request);
  } catch (const std::exception& cause) {  // the others must hear of it
    vote.ready = std::unexpected(out_of_memory(cause));
  }
  vote.has_shares = planner.has_shares() && are_replicas_proven;
  if (!vote.ready) return vote;
  Status taken = take_room(request);
  vote.is_busy = !taken && options.on_busy == OnBusy::kSkip;
  if (!vote.is_busy) vote.ready = std::move(taken);
  return vote;
}

Result<SaveVerdict> Checkpointer::Impl::agree_on_save(const SaveVote& own) {
  if (nodes) return agree_on_nodes(own);
  return ranks.agree_on_save(own, [&]() -> Result<std::optional<Identity>> {
    return writer.next_identity(own.step, [this] { settle_for_claim(); });
  });
}

// The others wait for this rank's checksums: they must hear of whatever keeps it from having them.
Status Checkpointer::Impl::share_out(const SaveRequest& request) {
  Result<std::vector<std::uint32_t>> crcs;
  try {
    crcs = checksums_of(request.tensors, devices, request.streams);
  } catch (const std::exception& cause) {
    crcs = std::unexpected(out_of_memory(cause));
  }
  return ranks.share_out(std::move(crcs), options.audit_saves, planner);
}

Result<SavePlan> Checkpointer::Impl::make_plan(const SaveRequest& request,
                                               const SaveVerdict& verdict) {
  const trace::Span span("plan");
  writer.agree(verdict.identity.run_id);  // all ranks have this verdict
  if (verdict.share_anew) DF_TRY_VOID(share_out(request));
  if (!ranks.commits()) {
    DF_TRY_VOID(writer.follow(verdict.identity.run_id, [this] { wait_for_jobs(); }));
  }
  if (reuse) DF_TRY_VOID(planner.make_cold(reuse->tensors.cold()));
  are_replicas_proven = true;
  save_index = verdict.identity.save_index;
  const auto plan = [&] {
    return planner.plan_save(request, verdict.identity, writer.record().parent);
  };
  DF_TRY(SavePlan made, plan());
  if (made.table->cold_files == 0 || !capturer.is_ring(made)) return made;
  DF_TRY_VOID(planner.make_cold({}));  // a cold file begins at a slab: the image may need a ring
  return plan();
}

void Checkpointer::Impl::push(std::shared_ptr<SaveJob> job) {
  const std::lock_guard lock(mutex);
  jobs.push(std::move(job));  // never waits: the arena admits one job at a time
  ++jobs_unfinished;
}

Result<std::shared_ptr<LiveCapture>> Checkpointer::Impl::make_capture(
    const SavePlan& plan, std::span<const DeviceStream> streams) {
  if (capturer.has_early()) {
    if (auto capture = capturer.take_early(plan)) return capture;
  }
  return capturer.prepare(plan, streams);
}

std::shared_ptr<SaveJob> Checkpointer::Impl::start_job(
    SavePlan plan, const std::shared_ptr<LiveCapture>& capture,
    const std::shared_ptr<SaveHandle::State>& handle, bool confirm) {
  const Image image = capturer.image(plan);
  const bool can_be_finished = agent && capturer.is_arena_shared() && !image.is_ring();
  const SaveJobSettings settings = {.write_engine = *write_engine,
                                    .commit_wait_max = std::min(options.commit_wait_max, kWaitMax),
                                    .confirm = confirm,
                                    .handover = can_be_finished ? &agent->handover() : nullptr,
                                    .reuse = reuse ? &*reuse : nullptr,
                                    .commit_node = commit_node()};
  const AttemptName attempt{plan.identity.step, plan.identity.attempt_id};
  watch->expect(attempt, handle);
  if (parity) parity->expect(attempt, handle);
  auto job = std::make_shared<SaveJob>(*vfs, std::move(plan), image, settings, capture, handle);
  handle->capturing(capture->session());
  capture->belongs_to(job);
  if (confirm) {
    const std::lock_guard lock(handle->mutex);
    handle->unconfirmed = job;
  }
  last_job = job;
  push(job);
  return job;
}

// The job is pushed before the capture, so that slabs are written while others are copied.
Status Checkpointer::Impl::start_save(const SaveRequest& request, const SaveVerdict& verdict,
                                      const std::shared_ptr<SaveHandle::State>& handle) {
  std::shared_ptr<SaveJob> job;
  std::shared_ptr<LiveCapture> capture;
  const ScopeExit free_unused_arena([&] {
    if (job) return;
    if (capture) capture->cancel();  // one that began early may still be filling the arena
    capturer.abandon();
  });
  try {
    DF_TRY(SavePlan plan, make_plan(request, verdict));
    capturer.choose_copy_time(plan);
    DF_TRY(capture, make_capture(plan, request.streams));
    note_sizes(plan, *handle);
    handle->status.early = capture->began_early();
    const bool confirm = request.confirm && handle->status.guarded_bytes > 0;
    job = start_job(std::move(plan), capture, handle, confirm);
    capturer.begin(capture, handle, request.streams);
  } catch (const std::exception& cause) {
    if (!job) return std::unexpected(out_of_memory(cause));
    job->capture_failed(out_of_memory(cause));  // the worker must not wait for the rest
  }
  return {};
}

Result<std::optional<SaveHandle>> Checkpointer::Impl::refused(
    Error error, const std::shared_ptr<SaveHandle::State>& handle) {
  error = error.within(fmt::format("save step {}", handle->status.step));
  if (is_callers_mistake(error)) return std::unexpected(std::move(error));
  SaveHandle result = handle_of(handle);
  handle->fail(std::move(error));
  note_end(false, handle);
  return result;
}

// The other ranks hear that this one is not in the save.
Result<std::optional<SaveHandle>> Checkpointer::Impl::withdrawn(
    const Identity& identity, const Error& error,
    const std::shared_ptr<SaveHandle::State>& handle) {
  if (!ranks.is_alone()) withdraw_unjoined(*vfs, identity, error);
  if (nodes && leads()) {
    wait_for_jobs();  // the worker takes letters, too
    std::ignore = commit_node()(identity, error);
  }
  leaves_aborted = true;
  return refused(error, handle);
}

Status Checkpointer::Impl::prewarm(const SaveRequest& request) {
  const trace::Span span("prewarm");
  SaveVote own{.run_id = writer.agreed_run_id(), .step = request.step, .is_save = false};
  try {
    own.ready = planner.accept(request);
  } catch (const std::exception& cause) {  // as in prepare()
    own.ready = std::unexpected(out_of_memory(cause));
  }
  own.has_shares = planner.has_shares();
  DF_TRY(const SaveVerdict verdict, agree_on_save(own));
  if (verdict.share_anew) DF_TRY_VOID(share_out(request));
  are_replicas_proven = false;  // before training all ranks are equal by construction
  capturer.discard_early();
  if (!capturer.take_arena(std::min(options.busy_wait_max, kWaitMax))) {
    return fail(ErrorCode::kBusy, "prewarm: the save before it did not finish in time");
  }
  const ScopeExit free_arena([this] { capturer.free_arena(); });
  DF_TRY_VOID(capturer.prewarm(planner.plan_capture(request.tensors, save_index + 1)));
  if (nodes || !ranks.commits()) return {};  // nodes claim with the first save
  return writer.prepare([this] { settle_for_claim(); });
}

// A handle for the caller, which notices when the caller has no copy left.
SaveHandle Checkpointer::Impl::handle_of(const std::shared_ptr<SaveHandle::State>& state) {
  SaveHandle handle(state);
  handle.keeper_ =
      std::shared_ptr<void>(state.get(), [weak = std::weak_ptr(state), owner = owner](void*) {
        const auto left = weak.lock();
        if (left && ::getpid() == owner) left->abandon();
      });
  return handle;
}

}  // namespace deepfreeze

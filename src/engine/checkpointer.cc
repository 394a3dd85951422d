#include "deepfreeze/checkpointer.h"

#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "base/bounded_queue.h"
#include "base/log.h"
#include "base/scope_exit.h"
#include "base/trace.h"
#include "base/try.h"
#include "engine/capturer.h"
#include "engine/open_checkpoint.h"
#include "engine/run_writer.h"
#include "engine/save_job.h"
#include "manifest/claims.h"
#include "manifest/retention.h"
#include "storage/posix_vfs.h"
#include "storage/trace_file.h"

namespace deepfreeze {
namespace {

// Longer waits would overflow the clock that they are added to.
constexpr std::chrono::milliseconds kWaitMax = std::chrono::hours(24 * 365);

// One save may be writing while the next, captured, waits: the arena admits no third.
constexpr std::size_t kJobsQueuedMax = 2;

Error out_of_memory(const std::exception& cause) {
  return {ErrorCode::kNoSpace, fmt::format("memory or threads are refused: {}", cause.what())};
}

Status check_options(const Options& options) {
  const Keep& keep = options.keep;
  if (keep.last == 0U || keep.every == 0U || (keep.best && keep.best->count == 0)) {
    return fail(ErrorCode::kInvalidArgument, "keep: 0 checkpoints or steps is no rule");
  }
  return {};
}

void note_sizes(const SavePlan& plan, SaveHandle::State& handle) {
  handle.status.bytes = plan.data_bytes();
  for (const CaptureItem& item : plan.items) {
    if (item.guard != kUnguarded) handle.status.guarded_bytes += item.source.size();
  }
}

bool is_callers_mistake(const Error& error) {
  return error.code() == ErrorCode::kInvalidArgument || error.code() == ErrorCode::kEncode;
}

}  // namespace

struct Checkpointer::Impl {
  // What opening can fail to make.
  struct Parts {
    std::unique_ptr<Vfs> vfs;
    RunWriter writer;
    std::unique_ptr<WriteEngine> write_engine;
    std::unique_ptr<TraceFile> trace_file;
  };
  Impl(Parts parts, Options chosen)
      : options(std::move(chosen)),
        vfs(std::move(parts.vfs)),
        writer(std::move(parts.writer)),
        capturer(options, *parts.write_engine),
        trace_file(std::move(parts.trace_file)),
        write_engine(std::move(parts.write_engine)),
        worker([this] { work(); }) {}

  ~Impl() { stop(); }

  void stop() {
    capturer.discard_early();
    capturer.fence_all();
    fail_unconfirmed();
    jobs.close();
    if (worker.joinable()) worker.join();
  }

  void work();
  void run_job(SaveJob& job);
  void collect_or_warn(const SaveJob& job);
  void collect(const SaveJob& job);
  void wait_idle();
  void wait_for_jobs();
  void fail_unconfirmed();
  [[nodiscard]] bool take_arena();
  [[nodiscard]] Result<SavePlan> make_plan(const SaveRequest& request);
  [[nodiscard]] Result<std::shared_ptr<LiveCapture>> make_capture(const SavePlan& plan);
  [[nodiscard]] std::shared_ptr<SaveJob> start_job(SavePlan plan,
                                                   const std::shared_ptr<LiveCapture>& capture,
                                                   const std::shared_ptr<SaveHandle::State>& handle,
                                                   bool confirm);
  [[nodiscard]] Result<std::optional<SaveHandle>> checked_save(const SaveRequest& request);
  [[nodiscard]] Status prewarm(const SaveRequest& request);
  [[nodiscard]] SaveHandle handle_of(const std::shared_ptr<SaveHandle::State>& state);
  [[nodiscard]] Status save(const SaveRequest& request, std::shared_ptr<SaveHandle::State> handle);
  [[nodiscard]] Status save_or_throw(const SaveRequest& request,
                                     const std::shared_ptr<SaveHandle::State>& handle);
  void push(std::shared_ptr<SaveJob> job);

  const Options options;
  const std::unique_ptr<Vfs> vfs;
  RunWriter writer;
  SavePlanner planner{{.with_ranges = options.statistics}};
  Capturer capturer;
  const std::unique_ptr<TraceFile> trace_file;      // null: no trace
  const std::unique_ptr<WriteEngine> write_engine;  // after the arena, whose memory it registers
  const pid_t owner = ::getpid();
  bool closed = false;
  std::weak_ptr<SaveJob> last_job;
  SaveHandle last_handle{make_handle_state(0)};

  std::mutex mutex;  // guards the next two
  std::condition_variable changed;
  std::size_t jobs_unfinished = 0;

  BoundedQueue<std::shared_ptr<SaveJob>> jobs{kJobsQueuedMax};
  std::thread worker;  // last: it uses all above
};

void Checkpointer::Impl::work() {
  ::pthread_setname_np(::pthread_self(), "df-save");
  while (const auto job = jobs.pop()) {
    run_job(**job);
    if (trace_file) trace_file->flush();
    const std::lock_guard lock(mutex);
    --jobs_unfinished;
    changed.notify_all();
  }
}

// The trainer must outlive whatever happens here, a refused allocation included.
void Checkpointer::Impl::run_job(SaveJob& job) {
  bool freed = false;  // from then on the arena is another save's
  const auto free_once = [&] {
    if (!std::exchange(freed, true)) capturer.free_arena();
  };
  bool committed = false;
  try {
    committed = job.run(free_once);
  } catch (const std::exception& cause) {
    job.settle_failed(out_of_memory(cause));
    free_once();
  }
  if (committed) collect_or_warn(job);
}

// The save itself is durable, whatever becomes of older ones.
void Checkpointer::Impl::collect_or_warn(const SaveJob& job) {
  try {
    collect(job);
  } catch (const std::exception& cause) {
    log_warning("old checkpoints stay: " + out_of_memory(cause).message());
  }
}

// Only after a commit of our own, so nothing goes before a newer step is durable; and only while
// the run is ours, because the next owner's rules may keep more.
void Checkpointer::Impl::collect(const SaveJob& job) {
  const trace::Span span("collect garbage");
  const Keep& keep = options.keep;
  if (!keep.last && !keep.every && !keep.best) return;
  if (!check_not_fenced(*vfs, job.generation())) return;
  const auto collected = collect_garbage(*vfs, keep, false);
  if (!collected) log_warning("old checkpoints stay: " + collected.error().message());
}

void Checkpointer::Impl::wait_idle() {
  capturer.discard_early();
  capturer.fence_all();  // who waits may as well copy
  wait_for_jobs();
}

void Checkpointer::Impl::wait_for_jobs() {
  std::unique_lock lock(mutex);
  changed.wait(lock, [this] { return jobs_unfinished == 0; });
}

// Nobody is left who would confirm it, and the worker waits for that.
void Checkpointer::Impl::fail_unconfirmed() {
  const auto job = last_job.lock();
  if (!job || !job->awaits_confirmation()) return;
  std::ignore = last_handle.wait_copied();
  job->capture_failed(Error(ErrorCode::kCancelled, "closed before the save was confirmed"));
}

bool Checkpointer::Impl::take_arena() {
  if (capturer.has_early()) return true;
  const bool waits = options.on_busy == OnBusy::kBlock;
  return capturer.take_arena(waits ? std::min(options.busy_wait_max, kWaitMax)
                                   : std::chrono::milliseconds{0});
}

Result<SavePlan> Checkpointer::Impl::make_plan(const SaveRequest& request) {
  const trace::Span span("plan");
  if (writer.must_claim(request.step)) wait_for_jobs();
  DF_TRY(const Identity identity, writer.next_identity(request.step));
  return planner.plan_save(request, identity, writer.record().parent);
}

void Checkpointer::Impl::push(std::shared_ptr<SaveJob> job) {
  const std::lock_guard lock(mutex);
  jobs.push(std::move(job));  // never waits: the arena admits one job at a time
  ++jobs_unfinished;
}

Result<std::shared_ptr<LiveCapture>> Checkpointer::Impl::make_capture(const SavePlan& plan) {
  if (capturer.has_early()) {
    if (auto capture = capturer.take_early(plan)) return capture;
  }
  return capturer.prepare(plan);
}

std::shared_ptr<SaveJob> Checkpointer::Impl::start_job(
    SavePlan plan, const std::shared_ptr<LiveCapture>& capture,
    const std::shared_ptr<SaveHandle::State>& handle, bool confirm) {
  const SaveJobSettings settings = {.write_engine = *write_engine,
                                    .commit_wait_max = options.commit_wait_max,
                                    .confirm = confirm};
  const Image image = capturer.image(plan);
  auto job = std::make_shared<SaveJob>(*vfs, std::move(plan), image, settings, capture, handle);
  handle->capturing(capture->session());
  capture->when_copied([job] { job->copied(); });
  if (confirm) {
    const std::lock_guard lock(handle->mutex);
    handle->on_abandon = [job, capture] {
      capture->cancel();
      job->capture_failed(Error(ErrorCode::kCancelled, "nobody is left to confirm the save"));
    };
  }
  last_job = job;
  last_handle = SaveHandle(handle);
  push(job);
  return job;
}

// The job is pushed before the capture, so that slabs are written while others are copied.
Status Checkpointer::Impl::save_or_throw(const SaveRequest& request,
                                         const std::shared_ptr<SaveHandle::State>& handle) {
  std::shared_ptr<SaveJob> job;
  std::shared_ptr<LiveCapture> capture;
  const ScopeExit free_unused_arena([&] {
    if (job) return;
    if (capture) capture->cancel();  // one that began early may still be filling the arena
    capturer.abandon();
  });
  DF_TRY(SavePlan plan, make_plan(request));
  capturer.choose_copy_time(plan);
  DF_TRY(capture, make_capture(plan));
  note_sizes(plan, *handle);
  handle->status.early = capture->began_early();
  const bool confirm = request.confirm && handle->status.guarded_bytes > 0;
  job = start_job(std::move(plan), capture, handle, confirm);
  try {
    capturer.begin(capture, handle);
  } catch (const std::exception& cause) {
    job->capture_failed(out_of_memory(cause));  // the worker must not wait for the rest
  }
  return {};
}

Status Checkpointer::Impl::save(const SaveRequest& request,
                                std::shared_ptr<SaveHandle::State> handle) {
  try {
    return save_or_throw(request, handle);
  } catch (const std::exception& cause) {
    return std::unexpected(out_of_memory(cause));
  }
}

Checkpointer::Checkpointer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Checkpointer::Checkpointer(Checkpointer&&) noexcept = default;

Checkpointer& Checkpointer::operator=(Checkpointer&& other) noexcept {
  std::swap(impl_, other.impl_);  // the destructor knows how to end it
  return *this;
}

Checkpointer::~Checkpointer() {
  // A forked child has neither the threads nor the arena: there is nothing to give back.
  if (impl_ && impl_->owner != ::getpid()) std::ignore = impl_.release();
}

Status Checkpointer::check_usable(std::string_view operation) const {
  if (!impl_->closed && impl_->owner == ::getpid()) return {};
  return fail(ErrorCode::kUnsupported,
              fmt::format("{}: the checkpointer is closed, or its process was forked", operation));
}

Result<Checkpointer> Checkpointer::open(const std::filesystem::path& path, Options options) {
  DF_TRY_VOID(check_options(options));
  DF_TRY(const IoMode io_mode, io_mode_from_environment());
  DF_TRY(auto write_engine,
         WriteEngine::open({.mode = io_mode, .writes_in_flight = options.write_threads}));
  std::error_code ignored;
  const auto root = std::filesystem::absolute(path, ignored).lexically_normal();
  DF_TRY_VOID(make_durable_directories(root));
  DF_TRY(auto vfs, open_posix_vfs(root));
  DF_TRY(RunWriter writer, RunWriter::open(*vfs, options.parent));
  DF_TRY(auto trace_file, TraceFile::from_environment());
  try {
    Impl::Parts parts = {.vfs = std::move(vfs),
                         .writer = std::move(writer),
                         .write_engine = std::move(write_engine),
                         .trace_file = std::move(trace_file)};
    return Checkpointer(std::make_unique<Impl>(std::move(parts), std::move(options)));
  } catch (const std::exception& cause) {  // std::system_error where no thread can be started
    return std::unexpected(out_of_memory(cause).within("open " + root.string()));
  }
}

Result<std::optional<SaveHandle>> Checkpointer::save(const SaveRequest& request) {
  const trace::Span span("save");
  DF_TRY_VOID(check_usable(fmt::format("save step {}", request.step)));
  try {
    return impl_->checked_save(request);
  } catch (const std::exception& cause) {
    impl_->capturer.discard_early();
    return std::unexpected(out_of_memory(cause).within("save"));
  }
}

Result<std::optional<SaveHandle>> Checkpointer::Impl::checked_save(const SaveRequest& request) {
  auto handle = make_handle_state(request.step);
  if (const Status checked = planner.accept(request); !checked) {
    capturer.discard_early();  // it was for a save that will not be
    return std::unexpected(checked.error());
  }
  if (!take_arena()) {
    if (options.on_busy == OnBusy::kSkip) return std::nullopt;
    return fail(ErrorCode::kBusy, fmt::format("save step {}: the save before it did not finish in "
                                              "time",
                                              request.step));
  }
  SaveHandle result = handle_of(handle);
  const Status saved = save(request, handle);
  if (!saved) {
    Error error = saved.error().within(fmt::format("save step {}", request.step));
    if (is_callers_mistake(error)) return std::unexpected(std::move(error));
    handle->fail(std::move(error));
  }
  // Where nothing is left to copy, the last checksum may still be under way on another thread.
  if (handle->status.guarded_bytes == 0) std::ignore = result.wait(Level::kCaptured);
  const std::lock_guard lock(handle->mutex);
  handle->status.stall_seconds = seconds_since(handle->started);
  return result;
}

Status Checkpointer::prewarm(const SaveRequest& request) {
  DF_TRY_VOID(check_usable("prewarm"));
  try {
    return impl_->prewarm(request);
  } catch (const std::exception& cause) {
    return std::unexpected(out_of_memory(cause).within("prewarm"));
  }
}

Status Checkpointer::Impl::prewarm(const SaveRequest& request) {
  const trace::Span span("prewarm");
  DF_TRY_VOID(planner.accept(request));
  capturer.discard_early();
  if (!capturer.take_arena(std::min(options.busy_wait_max, kWaitMax))) {
    return fail(ErrorCode::kBusy, "prewarm: the save before it did not finish in time");
  }
  const ScopeExit free_arena([this] { capturer.free_arena(); });
  DF_TRY_VOID(capturer.prewarm(planner.plan_capture(request.tensors)));
  wait_for_jobs();  // a claim would fence them
  return writer.prepare();
}

// For the caller: notices when he has no copy left.
SaveHandle Checkpointer::Impl::handle_of(const std::shared_ptr<SaveHandle::State>& state) {
  SaveHandle handle(state);
  handle.keeper_ =
      std::shared_ptr<void>(state.get(), [weak = std::weak_ptr(state), owner = owner](void*) {
        const auto left = weak.lock();
        if (left && ::getpid() == owner) left->abandon();
      });
  return handle;
}

void Checkpointer::fence(std::uint32_t guard) {
  if (impl_->owner == ::getpid()) impl_->capturer.fence(guard);
}

void Checkpointer::fence() {
  if (impl_->owner == ::getpid()) impl_->capturer.fence_all();
}

Result<bool> Checkpointer::begin_capture(const TensorTable& tensors) {
  DF_TRY_VOID(check_usable("begin a capture"));
  try {
    DF_TRY_VOID(impl_->planner.accept(tensors));
    return impl_->capturer.begin_early(impl_->planner.plan_capture(tensors));
  } catch (const std::exception& cause) {
    return std::unexpected(out_of_memory(cause).within("begin a capture"));
  }
}

// Called in the hooks of an update: an error would end it. The save captures anew instead.
void Checkpointer::release(std::uint32_t guard) {
  if (impl_->owner != ::getpid()) return;
  try {
    impl_->capturer.release_early(guard);
  } catch (const std::exception&) {
    impl_->capturer.discard_early();
  }
}

void Checkpointer::discard_capture() {
  if (impl_->owner == ::getpid()) impl_->capturer.discard_early();
}

Result<std::vector<CheckpointInfo>> Checkpointer::candidates() {
  DF_TRY_VOID(check_usable("list candidates"));
  impl_->wait_idle();
  DF_TRY(const RunListing listing, impl_->writer.decide());
  return describe_all(*impl_->vfs, listing);
}

Status Checkpointer::continue_from(const CheckpointInfo& info) {
  DF_TRY_VOID(check_usable("continue from " + info.path));
  impl_->writer.continue_from(point_of(info));
  return {};
}

void Checkpointer::wait() {
  if (impl_->owner == ::getpid()) impl_->wait_idle();
}

Status Checkpointer::close() {
  if (impl_->owner != ::getpid()) return {};
  impl_->closed = true;
  impl_->stop();
  impl_->capturer.give_back();
  return {};
}

}  // namespace deepfreeze

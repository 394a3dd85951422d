#include "deepfreeze/checkpointer.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/bounded_queue.h"
#include "base/log.h"
#include "base/try.h"
#include "engine/open_checkpoint.h"
#include "engine/run_writer.h"
#include "engine/save_job.h"
#include "manifest/retention.h"
#include "staging/arena.h"
#include "staging/copier_pool.h"
#include "storage/posix_vfs.h"

namespace deepfreeze {
namespace {

// One save may be writing while the next, captured, waits: the arena admits no third.
constexpr std::size_t kJobsQueuedMax = 2;

std::size_t cores_of_this_process() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (::sched_getaffinity(0, sizeof cores, &cores) != 0) return 1;
  return static_cast<std::size_t>(std::max(1, CPU_COUNT(&cores)));
}

// The caller copies too, so one thread fewer than cores.
std::size_t helpers_wanted(std::size_t copy_threads) {
  return (copy_threads == 0 ? cores_of_this_process() : copy_threads) - 1;
}

bool is_callers_mistake(const Error& error) {
  return error.code() == ErrorCode::kInvalidArgument || error.code() == ErrorCode::kEncode;
}

}  // namespace

struct Checkpointer::Impl {
  Impl(std::unique_ptr<Vfs> run_vfs, RunWriter run_writer, Options chosen)
      : options(std::move(chosen)),
        vfs(std::move(run_vfs)),
        writer(std::move(run_writer)),
        copiers(helpers_wanted(options.copy_threads)),
        worker([this] { work(); }) {}

  ~Impl() { stop(); }

  void stop() {
    jobs.close();
    if (worker.joinable()) worker.join();
  }

  void work();
  void collect();
  [[nodiscard]] bool take_arena();
  void free_arena();
  [[nodiscard]] Result<std::shared_ptr<SaveJob>> make_job(
      const SaveRequest& request, std::shared_ptr<SaveHandle::State> handle);
  [[nodiscard]] Status save(const SaveRequest& request, std::shared_ptr<SaveHandle::State> handle);
  void capture(SaveJob& job, std::span<std::byte> image);

  const Options options;
  const std::unique_ptr<Vfs> vfs;
  RunWriter writer;
  Arena arena;
  CopierPool copiers;
  const pid_t owner = ::getpid();
  bool closed = false;

  std::mutex mutex;  // guards the next three
  std::condition_variable changed;
  bool arena_busy = false;
  std::size_t jobs_unfinished = 0;

  BoundedQueue<std::shared_ptr<SaveJob>> jobs{kJobsQueuedMax};
  std::thread worker;  // last: it uses all above
};

void Checkpointer::Impl::work() {
  ::pthread_setname_np(::pthread_self(), "df-save");
  while (const auto job = jobs.pop()) {
    (*job)->run([this] { free_arena(); });
    collect();
    const std::lock_guard lock(mutex);
    --jobs_unfinished;
    changed.notify_all();
  }
}

// Only ever after a commit, so nothing goes before a newer step is durable.
void Checkpointer::Impl::collect() {
  const Keep& keep = options.keep;
  if (!keep.last && !keep.every && !keep.best) return;
  const auto collected = collect_garbage(*vfs, keep, false);
  if (!collected) log_warning("old checkpoints stay: " + collected.error().message());
}

bool Checkpointer::Impl::take_arena() {
  std::unique_lock lock(mutex);
  const auto free = [this] { return !arena_busy; };
  if (options.on_busy == OnBusy::kBlock) changed.wait_for(lock, options.busy_wait_max, free);
  if (arena_busy) return false;
  return arena_busy = true;
}

void Checkpointer::Impl::free_arena() {
  const std::lock_guard lock(mutex);
  arena_busy = false;
  changed.notify_all();
}

Result<std::shared_ptr<SaveJob>> Checkpointer::Impl::make_job(
    const SaveRequest& request, std::shared_ptr<SaveHandle::State> handle) {
  DF_TRY(const Identity identity, writer.next_identity(request.step));
  DF_TRY(SavePlan plan, plan_save(request, identity, writer.record().parent));
  DF_TRY_VOID(arena.reserve(plan.header.data_bytes));
  const auto image = arena.bytes().first(plan.header.data_bytes);
  handle->status.bytes = plan.header.data_bytes;
  return std::make_shared<SaveJob>(*vfs, std::move(plan), image,
                                   SaveJobSettings{.write_threads = options.write_threads,
                                                   .commit_wait_max = options.commit_wait_max},
                                   std::move(handle));
}

void Checkpointer::Impl::capture(SaveJob& job, std::span<std::byte> image) {
  CaptureSession session({.image = image, .block_bytes = kBlockBytes, .slab_bytes = kSlabBytes},
                         job.items(), [&job](std::size_t slab) { job.slab_ready(slab); });
  copiers.run(session);
  job.captured(session.block_crcs());
}

Status Checkpointer::Impl::save(const SaveRequest& request,
                                std::shared_ptr<SaveHandle::State> handle) {
  const auto job = make_job(request, handle);
  if (!job) {
    free_arena();
    return std::unexpected(job.error());
  }
  {
    const std::lock_guard lock(mutex);
    ++jobs_unfinished;
  }
  jobs.push(*job);  // before the capture, so that slabs are written while others are copied
  capture(**job, arena.bytes().first(handle->status.bytes));
  handle->reach(Level::kCaptured);
  return {};
}

Checkpointer::Checkpointer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Checkpointer::Checkpointer(Checkpointer&&) noexcept = default;
Checkpointer& Checkpointer::operator=(Checkpointer&&) noexcept = default;

Checkpointer::~Checkpointer() {
  // A forked child has neither the threads nor the arena: there is nothing to give back.
  if (impl_ && impl_->owner != ::getpid()) std::ignore = impl_.release();
}

Result<Checkpointer> Checkpointer::open(const std::filesystem::path& path, Options options) {
  if (options.keep.last == 0U) {
    return fail(ErrorCode::kInvalidArgument, "keep.last: at least 1 checkpoint must stay");
  }
  std::error_code ignored;
  const auto root = std::filesystem::absolute(path, ignored).lexically_normal();
  DF_TRY_VOID(make_durable_directories(root));
  DF_TRY(auto vfs, open_posix_vfs(root));
  DF_TRY(RunWriter writer, RunWriter::open(*vfs, options.parent));
  return Checkpointer(
      std::make_unique<Impl>(std::move(vfs), std::move(writer), std::move(options)));
}

Result<std::optional<SaveHandle>> Checkpointer::save(const SaveRequest& request) {
  if (impl_->closed || impl_->owner != ::getpid()) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("save step {}: the checkpointer is closed, or its process was forked",
                            request.step));
  }
  auto handle = std::make_shared<SaveHandle::State>(request.step);
  DF_TRY_VOID(check_request(request));
  if (!impl_->take_arena()) {
    if (impl_->options.on_busy == OnBusy::kSkip) return std::nullopt;
    return fail(ErrorCode::kBusy, fmt::format("save step {}: the save before it did not finish in "
                                              "time",
                                              request.step));
  }
  const Status saved = impl_->save(request, handle);
  if (!saved) {
    Error error = saved.error().within(fmt::format("save step {}", request.step));
    if (is_callers_mistake(error)) return std::unexpected(std::move(error));
    handle->fail(std::move(error));
  }
  const std::lock_guard lock(handle->mutex);
  handle->status.stall_seconds = seconds_since(handle->started);
  return SaveHandle(std::move(handle));
}

Result<std::vector<CheckpointInfo>> Checkpointer::candidates() {
  wait();
  DF_TRY(const RunListing listing, impl_->writer.decide());
  return describe_all(*impl_->vfs, listing);
}

Status Checkpointer::continue_from(const CheckpointInfo& info) {
  impl_->writer.continue_from(point_of(info));
  return {};
}

void Checkpointer::wait() {
  if (impl_->owner != ::getpid()) return;
  std::unique_lock lock(impl_->mutex);
  impl_->changed.wait(lock, [this] { return impl_->jobs_unfinished == 0; });
}

Status Checkpointer::close() {
  if (impl_->owner != ::getpid()) return {};
  impl_->closed = true;
  impl_->stop();
  return {};
}

}  // namespace deepfreeze

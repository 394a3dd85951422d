#include "deepfreeze/checkpointer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "api/checkpointer_impl.h"
#include "api/open_checkpoint.h"
#include "base/log.h"
#include "base/scope_exit.h"
#include "base/trace.h"
#include "base/try.h"
#include "ipc/private_directory.h"
#include "object/open_object.h"
#include "storage/posix_vfs.h"
#include "tiering/merged_run.h"

namespace deepfreeze {
namespace {

constexpr std::size_t kMetricNameBytesMax = 65'536;  // it is in every claim

Status check_options(const Options& options) {
  const Keep& keep = options.keep;
  if (keep.last == 0U || keep.every == 0U || (keep.best && keep.best->count == 0)) {
    return fail(ErrorCode::kInvalidArgument, "keep: 0 checkpoints or steps is no rule");
  }
  if (keep.best && keep.best->metric.size() > kMetricNameBytesMax) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("keep: the name of the metric has {} bytes, of at most {}",
                            keep.best->metric.size(), kMetricNameBytesMax));
  }
  if (options.near == Near::kNode && options.read_only) {
    return fail(ErrorCode::kUnsupported,
                "near: a run on nodes with directories of their own can't be opened read-only yet: "
                "open it to write, or open a farther tier by its own path");
  }
  if (options.protect && options.near != Near::kNode) {
    return fail(ErrorCode::kInvalidArgument,
                "protect: parity is for nodes that have directories of their own: open with "
                "near=\"node\"");
  }
  return check_bytes_max(options);
}

// Saves need renames and syncs.
Status check_root(const std::string& root, bool read_only) {
  if (read_only || !is_object_url(root)) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("open {} to save in it: a run is saved in a directory first. Name one, "
                          "and the store among the tiers; to restore only, open it with read_only",
                          root));
}

template <class T>
Status status_of(const Result<T>& result) {
  if (result) return {};
  return std::unexpected(result.error());
}

// The options that ranks must have in common. A checkpoint is known to be finite only if all ranks
// have statistics.
std::string_view subject_of(const Options& options) {
  if (options.read_only) return "open read-only";
  if (options.near == Near::kNode) {
    return options.statistics ? "open with near=\"node\" and statistics"
                              : "open with near=\"node\"";
  }
  return options.statistics ? "open with statistics" : "open";
}

// Reported at open(): a save would find it only when there is something to lose.
Result<std::unique_ptr<Vfs>> open_to_write(const std::filesystem::path& root) {
  DF_TRY_VOID(make_durable_directories(root));
  DF_TRY(auto vfs, open_posix_vfs(root));
  DF_TRY_VOID(vfs->check_writable());
  return vfs;
}

Result<std::unique_ptr<Vfs>> open_directory(const std::filesystem::path& root, bool read_only) {
  if (read_only) return open_vfs(root.string());
  auto vfs = open_to_write(root);
  if (vfs) return vfs;
  const Error cause = vfs.error().within(fmt::format("open {} to save in it", root.string()));
  return fail(cause.code(),
              cause.message() +
                  ". Choose a directory that this process may write; to restore "
                  "only, open it with read_only",
              cause.os_errno());
}

// On a machine that has nothing of the run yet, a reader begins with the nearest tier that has it.
std::filesystem::path first_with_run(const std::filesystem::path& root,
                                     std::span<const FarTier> tiers, bool read_only) {
  const auto has_run = [](const std::filesystem::path& path) {
    const auto vfs = open_vfs(path.string());
    return vfs && read_run(**vfs);
  };
  if (!read_only || has_run(root)) return root;
  const auto found =
      std::ranges::find_if(tiers, [&](const FarTier& tier) { return has_run(tier.place); });
  return found == tiers.end() ? root : std::filesystem::path(found->place);
}

// As an agent is told of it: its environment may be another one than this program's.
Tier tier_for_agent(Tier tier, const FarTier& opened) {
  tier.path = opened.place;
  if (!is_object_url(tier.path)) return tier;
  const auto place = parse_object_url(tier.path, process_environment(),
                                      {.endpoint = tier.endpoint, .region = tier.region});
  if (!place) return tier;
  tier.endpoint = place->endpoint;
  tier.region = place->region;
  return tier;
}

// Null if none is wanted, or if nothing could be given to it.
std::unique_ptr<AgentLink> open_agent(const Options& options, const AgentHello& hello,
                                      std::span<const FarTier> tiers) {
  if (!options.agent || options.read_only) return nullptr;
  AgentLinkSettings settings = {
      .directory = options.agent->directory, .command = options.agent->command, .hello = hello};
  if (settings.directory.empty()) settings.directory = default_agent_directory();
  for (std::size_t i = 0; i < tiers.size(); ++i) {
    settings.hello.tiers.push_back(tier_for_agent(options.tiers[i], tiers[i]));
  }
  return AgentLink::open(std::move(settings));
}

}  // namespace

Checkpointer::Checkpointer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Checkpointer::Checkpointer(Checkpointer&&) noexcept = default;

Checkpointer& Checkpointer::operator=(Checkpointer&& other) noexcept {
  std::swap(impl_, other.impl_);  // the destructor knows how to end it
  return *this;
}

Checkpointer::~Checkpointer() {
  // A forked child has neither the threads nor the arena: there is nothing to give back.
  if (impl_ && impl_->owner != ::getpid()) std::ignore = impl_.release();
  if (!impl_ || impl_->closed) return;
  impl_->stop();
  const Status saved = impl_->check_any_saved();
  if (!saved) log_warning(saved.error().message());
}

Status Checkpointer::check_usable(std::string_view operation) const {
  if (!impl_->closed && impl_->owner == ::getpid()) return {};
  return fail(ErrorCode::kUnsupported,
              fmt::format("{}: the checkpointer is closed, or its process was forked", operation));
}

Result<Checkpointer> Checkpointer::open(const std::filesystem::path& path, Options options) {
  DF_TRY(JobRanks ranks, JobRanks::join(options.ranks));
  const std::string_view subject = subject_of(options);
  auto place = Impl::open_place(path, options);
  std::optional<NodeMap> map;
  if (options.near == Near::kNode) {
    DF_TRY_VOID(ranks.agree(subject, status_of(place)));
    DF_TRY(map, Impl::find_nodes(*place->vfs, options, ranks));
  }
  const std::string interface = options.link;
  auto own = place ? Impl::open(*std::move(place), std::move(options), ranks, std::move(map))
                   : std::unexpected(place.error());
  DF_TRY_VOID(ranks.agree(subject, status_of(own)));
  Impl& impl = **own;
  if (impl.is_on_nodes()) {
    DF_TRY(impl.nodes, NearNodes::open(*ranks.group(), *impl.map, *impl.vfs,
                                       impl.writer.record().run_id, interface));
    DF_TRY_VOID(impl.start_parity());
    impl.give_leader_an_heir();
  } else if (impl.options.protect && impl.ranks.commits()) {
    log_warning(fmt::format("protect: {} has no parity, because its job has one node",
                            impl.vfs->path_of("")));
  }
  return Checkpointer(*std::move(own));
}

Result<Checkpointer::Impl::Place> Checkpointer::Impl::open_place(const std::filesystem::path& path,
                                                                 Options& options) {
  DF_TRY_VOID(check_options(options));
  DF_TRY(const IoMode io_mode, io_mode_from_environment());
  Place place;
  DF_TRY(place.write_engine,
         WriteEngine::open({.mode = io_mode, .writes_in_flight = options.write_threads}));
  DF_TRY(place.root, absolute_place(path.string()));
  DF_TRY_VOID(check_root(place.root.string(), options.read_only));
  if (options.parent) {
    DF_TRY(options.parent->run, absolute_place(options.parent->run));
  }
  DF_TRY(place.tiers, open_tiers(place.root, options.tiers, options.read_only));
  DF_TRY(place.vfs, open_directory(first_with_run(place.root, place.tiers, options.read_only),
                                   options.read_only));
  if (!options.read_only) {  // by every rank: the first one to come would make another run
    for (const FarTier& tier : place.tiers) {
      DF_TRY_VOID(adopt_history(*place.vfs, tier.store->view()));
    }
  }
  return place;
}

Result<std::unique_ptr<Checkpointer::Impl>> Checkpointer::Impl::open(Place place, Options options,
                                                                     const JobRanks& ranks,
                                                                     std::optional<NodeMap> map) {
  Vfs* const vfs = place.vfs.get();
  const AgentHello hello{.run = place.root.string(),
                         .commits = map ? map->leads() : ranks.commits(),
                         .is_on_nodes = map && !map->is_one(),
                         .is_rank0 = ranks.commits(),
                         .settles = true};
  // Before anybody looks for the newest checkpoint.
  auto agent = open_agent(options, hello, place.tiers);
  DF_TRY(RunWriter writer, options.read_only ? RunWriter::open_to_read(*vfs)
                                             : RunWriter::open(*vfs, options.parent, options.keep));
  if (map) writer.decides_as(map->nodes().front().digits);
  DF_TRY(auto trace_file, TraceFile::from_environment());
  try {
    Parts parts = {.ranks = ranks,
                   .vfs = std::move(place.vfs),
                   .tiers = std::move(place.tiers),
                   .writer = std::move(writer),
                   .write_engine = std::move(place.write_engine),
                   .trace_file = std::move(trace_file),
                   .agent = std::move(agent),
                   .map = std::move(map)};
    auto impl = std::make_unique<Impl>(std::move(parts), std::move(options));
    // A run whose directory is lost is the same run as long as a tier has its records.
    impl->writer.make_again_from([found = impl.get()] { return found->adopt(); });
    if (impl->agent) {
      impl->capturer.on_new_arena([to = impl->agent.get()](int fd) { to->use_arena(fd); });
    }
    return impl;
  } catch (const std::exception& cause) {  // std::system_error if no thread can be started
    return std::unexpected(out_of_memory(cause).within("open " + place.root.string()));
  }
}

// The ranks agree first whether there is a save; only then does this rank start its part.
Result<std::optional<SaveHandle>> Checkpointer::save(const SaveRequest& request) {
  const trace::Span span("save");
  try {
    const std::string operation = fmt::format("save step {}", request.step);
    DF_TRY_VOID(check_usable(operation));
    DF_TRY_VOID(impl_->check_may_save(operation));
    const auto handle = make_handle_state(request.step);
    const SaveVote own = impl_->prepare(request);
    bool is_agreed = false;
    const ScopeExit give_arena_back([&] {
      if (is_agreed) return;
      if (own.ready && !own.is_busy) impl_->capturer.abandon();
      impl_->capturer.discard_early();  // it was for a save that will not be
    });
    const auto verdict = impl_->agree_on_save(own);
    if (!verdict) return impl_->refused(verdict.error(), handle);
    if (verdict->skip) return std::nullopt;
    SaveHandle result = impl_->handle_of(handle);
    is_agreed = true;
    const Status started = impl_->start_save(request, *verdict, handle);
    if (!started) return impl_->withdrawn(verdict->identity, started.error(), handle);
    // If nothing is left to copy, the last checksum may still be under way on another thread.
    if (handle->status.guarded_bytes == 0) std::ignore = result.wait_copied();
    const std::lock_guard lock(handle->mutex);
    handle->status.stall_seconds = seconds_since(handle->started);
    return result;
  } catch (const std::exception& cause) {
    impl_->capturer.discard_early();
    return std::unexpected(out_of_memory(cause).within("save"));
  }
}

void Checkpointer::decline(const Error& why) {
  if (!check_usable("decline") || impl_->ranks.is_alone()) return;
  impl_->capturer.discard_early();
  const SaveVote own{.run_id = {}, .ready = std::unexpected(why)};
  std::ignore = impl_->agree_on_save(own);
}

Status Checkpointer::prewarm(const SaveRequest& request) {
  DF_TRY_VOID(check_usable("prewarm"));
  DF_TRY_VOID(impl_->check_may_save("prewarm"));
  try {
    return impl_->prewarm(request);
  } catch (const std::exception& cause) {
    return std::unexpected(out_of_memory(cause).within("prewarm"));
  }
}

void Checkpointer::expect(std::uint64_t bytes, std::span<const std::int32_t> devices) {
  if (!check_usable("expect") || impl_->options.read_only) return;
  try {
    impl_->capturer.expect(bytes, devices);
  } catch (const std::exception&) {  // the save itself will say so
  }
}

void Checkpointer::fence(std::uint32_t guard, std::span<const DeviceStream> streams) {
  if (impl_->owner == ::getpid()) impl_->capturer.fence(guard, streams);
}

void Checkpointer::fence(std::span<const DeviceStream> streams) {
  if (impl_->owner == ::getpid()) impl_->capturer.fence_all(streams);
}

Result<bool> Checkpointer::begin_capture(const TensorTable& tensors) {
  DF_TRY_VOID(check_usable("begin a capture"));
  try {
    DF_TRY_VOID(impl_->planner.accept(tensors));
    if (!impl_->planner.has_shares()) return false;  // the next save tells
    return impl_->capturer.begin_early(impl_->planner.plan_capture(tensors, impl_->save_index + 1));
  } catch (const std::exception& cause) {
    return std::unexpected(out_of_memory(cause).within("begin a capture"));
  }
}

// Called in the hooks of an update, which an error would end. The save captures anew instead.

void Checkpointer::release(std::uint32_t guard, std::span<const DeviceStream> streams) {
  if (impl_->owner != ::getpid()) return;
  try {
    impl_->capturer.release_early(guard, streams);
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
  return impl_->candidates();
}

Result<OpenCheckpoint> Checkpointer::open_checkpoint(const CheckpointInfo& info) {
  DF_TRY_VOID(check_usable("open " + info.path));
  if (!impl_->nodes) return deepfreeze::open_checkpoint(info);
  DF_TRY(auto files, impl_->nodes->files_of({info.step, info.attempt_id}));
  return open_on_nodes(info, impl_->vfs->path_of(""), std::move(files), impl_->nodes);
}

Result<std::optional<CheckpointInfo>> Checkpointer::best(const BestBy& by) {
  DF_TRY(const auto infos, candidates());
  if (infos.empty()) return std::nullopt;
  const auto found = impl_->best_of_own(infos, by);
  const Status own = found ? Status{} : std::unexpected(found.error());
  // The rules on the disk may have become another process's: ranks that chose different checkpoints
  // must not go on.
  DF_TRY_VOID(
      agree(found ? "best: " + attempt_dir_name({found->step, found->attempt_id}) : "best", own));
  return *found;
}

Result<bool> Checkpointer::as_rank0(bool own) {
  DF_TRY_VOID(check_usable("ask rank 0"));
  return impl_->ranks.as_rank0(own);
}

Status Checkpointer::agree(std::string_view subject, const Status& own) {
  DF_TRY_VOID(check_usable("agree"));
  return impl_->ranks.agree(subject, own);
}

Status Checkpointer::continue_from(const CheckpointInfo& info) {
  DF_TRY_VOID(check_usable("continue from " + info.path));
  if (impl_->options.read_only) return {};
  impl_->writer.continue_from(point_of(info));
  impl_->save_index = std::max(impl_->writer.save_index(), info.save_index);
  return {};
}

void Checkpointer::heal(const CheckpointInfo& info, std::span<const MendedFile> mended) {
  if (impl_->owner == ::getpid() && impl_->flusher) impl_->heal(info, mended);
}

std::vector<TierStatus> Checkpointer::tiers() const {
  if (impl_->owner != ::getpid() || !impl_->flusher || !impl_->ranks.commits()) return {};
  return impl_->tier_statuses();
}

Status Checkpointer::drain(std::chrono::milliseconds timeout) {
  DF_TRY_VOID(check_usable("drain"));
  impl_->wait_idle();
  return impl_->flusher ? impl_->flusher->drain(timeout) : Status{};
}

void Checkpointer::wait() {
  if (impl_->owner == ::getpid()) impl_->wait_idle();
}

Status Checkpointer::close() {
  if (impl_->owner != ::getpid()) return {};
  if (std::exchange(impl_->closed, true)) return {};
  impl_->stop();
  impl_->capturer.give_back();
  return impl_->check_any_saved();
}

}  // namespace deepfreeze

// The parts of a Checkpointer. Its functions are for the caller's thread except for those that
// work() calls, on the engine's worker.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "agent/agent_link.h"
#include "agreement/job_ranks.h"
#include "agreement/parity_round.h"
#include "api/near_nodes.h"
#include "api/near_room.h"
#include "api/node_parity.h"
#include "api/tiers.h"
#include "base/bounded_queue.h"
#include "deepfreeze/checkpointer.h"
#include "pipeline/write_engine.h"
#include "save/capturer.h"
#include "save/reuse.h"
#include "save/run_writer.h"
#include "save/save_job.h"
#include "save/save_plan.h"
#include "storage/trace_file.h"
#include "storage/vfs.h"

namespace deepfreeze {

// One save may be writing while the next, captured, waits: the arena admits no third.
inline constexpr std::size_t kJobsQueuedMax = 2;
// Longer waits would overflow the clock that they are added to.
inline constexpr std::chrono::milliseconds kWaitMax = std::chrono::hours(24 * 365);

// The error for memory or threads that the system refuses.
[[nodiscard]] Error out_of_memory(const std::exception& cause);

struct Checkpointer::Impl {
  // The places of a run, opened.
  struct Place {
    std::filesystem::path root;
    std::unique_ptr<Vfs> vfs;
    std::vector<FarTier> tiers;
    std::unique_ptr<WriteEngine> write_engine;
  };
  // The parts whose making can fail.
  struct Parts {
    JobRanks ranks;
    std::unique_ptr<Vfs> vfs;
    std::vector<FarTier> tiers;
    RunWriter writer;
    std::unique_ptr<WriteEngine> write_engine;
    std::unique_ptr<TraceFile> trace_file;
    std::unique_ptr<AgentLink> agent;
    std::optional<NodeMap> map;
  };
  [[nodiscard]] static Result<Place> open_place(const std::filesystem::path& path,
                                                Options& options);
  // Collective: steps O1 to O3 of docs/decisions/0026.
  [[nodiscard]] static Result<NodeMap> find_nodes(Vfs& vfs, const Options& options,
                                                  const JobRanks& ranks);
  [[nodiscard]] static Result<std::unique_ptr<Impl>> open(Place place, Options options,
                                                          const JobRanks& ranks,
                                                          std::optional<NodeMap> map);
  Impl(Parts parts, Options chosen)
      : options(std::move(chosen)),
        ranks(std::move(parts.ranks)),
        map(std::move(parts.map)),
        vfs(std::move(parts.vfs)),
        writer(std::move(parts.writer)),
        planner({.with_ranges = options.statistics}, !ranks.is_alone()),
        reuse(options.reuse_unchanged && !is_on_nodes()
                  ? std::make_optional<Reuse>(ColdRules{.bytes_min = options.reuse_bytes_min})
                  : std::nullopt),
        capturer(options, *parts.write_engine, devices),
        trace_file(std::move(parts.trace_file)),
        write_engine(std::move(parts.write_engine)),
        agent(std::move(parts.agent)),
        watch(std::make_shared<TierWatch>(options.tiers)),
        flusher(start_flusher(std::move(parts.tiers))),
        room(options.bytes_max, leads() ? flusher : nullptr),
        worker([this] { work(); }) {}

  ~Impl() { stop(); }

  void stop() {
    capturer.end_expecting();
    capturer.discard_early();
    capturer.fence_all();
    fail_unconfirmed();
    jobs.close();
    if (!worker.joinable()) return;
    worker.join();
    const auto until = Monotonic::now() + std::min(options.drain_wait_max, kWaitMax);
    const bool agent_goes_on = agent && agent->say_bye();
    if (!agent_goes_on) drain_or_warn();
    if (flusher) flusher->stop();
    if (parity) parity->drain(time_left(until));
    if (nodes) nodes->close();
    if (parity) parity->stop();  // it may wait for other nodes, until the links are closed
    watch->end(agent_goes_on ? "the run was closed before it arrived; the agent goes on with it"
                             : "the run was closed before it arrived");
  }

  [[nodiscard]] static std::chrono::milliseconds time_left(Monotonic::time_point until) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Monotonic::now());
    return std::max(left, std::chrono::milliseconds(0));
  }
  // Whether this rank commits, copies and deletes in the directory that it sees.
  [[nodiscard]] bool leads() const { return map ? map->leads() : ranks.commits(); }
  [[nodiscard]] bool is_on_nodes() const { return map && !map->is_one(); }
  [[nodiscard]] CommitNode commit_node();
  void give_leader_an_heir();
  [[nodiscard]] Status start_parity();
  [[nodiscard]] Status start_own_parity(const OwnParityGroup& group);
  void work();
  void run_job(SaveJob& job);
  void collect_or_warn(const SaveJob& job);
  void tell_parity(const SaveJob& job, bool committed);
  void collect(std::uint64_t generation);
  [[nodiscard]] std::shared_ptr<Flusher> start_flusher(std::vector<FarTier> far);
  [[nodiscard]] Status adopt();
  void settle_for_claim();
  void drain_or_warn();
  void heal(const CheckpointInfo& info, std::span<const MendedFile> mended);
  [[nodiscard]] std::vector<TierStatus> tier_statuses() const;
  void wait_idle();
  void wait_for_jobs();
  void fail_unconfirmed();
  void note_end(bool committed, const std::shared_ptr<SaveHandle::State>& handle);
  [[nodiscard]] Status check_any_saved();
  [[nodiscard]] Status check_may_save(std::string_view operation) const;
  [[nodiscard]] bool take_arena(Monotonic::time_point deadline);
  [[nodiscard]] std::optional<SaveBytes> in_flight();
  [[nodiscard]] Status take_room(const SaveRequest& request);
  [[nodiscard]] SaveVote prepare(const SaveRequest& request);
  [[nodiscard]] Result<SaveVerdict> agree_on_save(const SaveVote& own);
  [[nodiscard]] Result<SaveVerdict> agree_on_nodes(const SaveVote& own);
  [[nodiscard]] Status share_out(const SaveRequest& request);
  [[nodiscard]] Result<SavePlan> make_plan(const SaveRequest& request, const SaveVerdict& verdict);
  [[nodiscard]] Result<std::shared_ptr<LiveCapture>> make_capture(
      const SavePlan& plan, std::span<const DeviceStream> streams);
  [[nodiscard]] std::shared_ptr<SaveJob> start_job(SavePlan plan,
                                                   const std::shared_ptr<LiveCapture>& capture,
                                                   const std::shared_ptr<SaveHandle::State>& handle,
                                                   bool confirm);
  [[nodiscard]] Status prewarm(const SaveRequest& request);
  [[nodiscard]] SaveHandle handle_of(const std::shared_ptr<SaveHandle::State>& state);
  [[nodiscard]] Result<std::optional<SaveHandle>> refused(
      Error error, const std::shared_ptr<SaveHandle::State>& handle);
  [[nodiscard]] Result<std::optional<SaveHandle>> withdrawn(
      const Identity& identity, const Error& error,
      const std::shared_ptr<SaveHandle::State>& handle);
  [[nodiscard]] Status start_save(const SaveRequest& request, const SaveVerdict& verdict,
                                  const std::shared_ptr<SaveHandle::State>& handle);
  void push(std::shared_ptr<SaveJob> job);
  [[nodiscard]] Result<std::vector<CheckpointInfo>> candidates();
  [[nodiscard]] Result<std::vector<CheckpointInfo>> own_candidates();
  [[nodiscard]] Result<std::vector<CheckpointInfo>> candidates_on_nodes();
  [[nodiscard]] Result<TieredListing> read_all();
  [[nodiscard]] Result<CheckpointInfo> best_of_own(const std::vector<CheckpointInfo>& infos,
                                                   const BestBy& by) const;

  const Options options;
  JobRanks ranks;
  const std::optional<NodeMap> map;  // of Near::kNode
  const std::unique_ptr<Vfs> vfs;
  RunWriter writer;  // of the rank that commits; others have it for the run's record
  SavePlanner planner;
  CudaDevices devices;
  std::optional<Reuse> reuse;  // absent: each checkpoint is written whole
  Capturer capturer;
  const std::unique_ptr<TraceFile> trace_file;      // null: no trace
  const std::unique_ptr<WriteEngine> write_engine;  // after the arena, whose memory it registers
  const std::unique_ptr<AgentLink> agent;           // null: there is none
  const std::shared_ptr<TierWatch> watch;
  const std::shared_ptr<ParityHold> parity_hold = std::make_shared<ParityHold>();
  std::vector<Vfs*> far_views;           // of the flusher's tiers, or of those below
  std::vector<FarTier> unwritten_tiers;  // of a run that was opened read-only
  const pid_t owner = ::getpid();
  bool closed = false;
  std::atomic<bool> leaves_aborted = false;  // attempts of ours, for the next commit to remove
  std::uint64_t save_index = 0;              // of the save that the next one follows
  bool are_replicas_proven = true;           // false after a prewarm; see agree_on_save()
  std::weak_ptr<SaveJob> last_job;

  std::mutex mutex;  // guards the next four
  std::condition_variable changed;
  std::size_t jobs_unfinished = 0;
  bool has_committed = false;
  std::shared_ptr<SaveHandle::State> first_failed;  // also its caller's, while none has committed

  BoundedQueue<std::shared_ptr<SaveJob>> jobs{kJobsQueuedMax};
  const std::shared_ptr<Flusher> flusher;  // null: there are no tiers to write
  std::shared_ptr<NearNodes> nodes;        // null: all ranks see one directory
  std::unique_ptr<NodeParity> parity;      // null: there is none; borrows nodes
  NearRoom room;                           // of the rank that commits; others have it always
  std::thread worker;                      // last: it uses all above
};

}  // namespace deepfreeze

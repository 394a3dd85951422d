#include "agent/successor.h"

#include <fmt/format.h>

#include <exception>
#include <numeric>
#include <tuple>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/named_threads.h"
#include "base/try.h"
#include "ipc/shared_memory.h"
#include "storage/posix_vfs.h"
#include "tiering/open_tiers.h"
#include "tiering/packing_judge.h"

namespace deepfreeze {
namespace {

constexpr std::chrono::milliseconds kLookPause{200};

// Grows as long as the tiers take anything.
std::uint64_t taken(const Flusher& flusher) {
  const auto reports = flusher.reports();
  return std::accumulate(reports.begin(), reports.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const TierReport& report) {
                           return sum + report.bytes_total + report.bytes_sent + report.committed;
                         });
}

Result<LeftOutcome> guarded(const std::function<Result<LeftOutcome>()>& finish) {
  try {
    return finish();
  } catch (const std::exception& cause) {
    return fail(ErrorCode::kNoSpace,
                fmt::format("the system refuses memory or threads: {}", cause.what()));
  }
}

}  // namespace

Successor::Successor(LeftWork work, std::function<void()> on_change)
    : run_(work.run),
      tiers_(work.tiers),
      on_change_(std::move(on_change)),
      report_{.run = work.run,
              .process = work.process,
              .state = "finishing a save",
              .outcome = {},
              .error = {}},
      thread_([this, left = std::move(work)]() mutable { this->work(std::move(left)); }) {}

Successor::~Successor() {
  end_flush();
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  thread_.join();
}

void Successor::work(LeftWork work) {
  enter_own_thread("df-successor");
  settle(work);
  note("flushing");
  flush_and_note(work);
  const auto answered = guarded([&]() -> Result<LeftOutcome> {
    answer_nodes();
    return LeftOutcome::kNothing;
  });
  if (!answered) log_warning(fmt::format("{}: {}", work.run, answered.error().message()));
  heir_.reset();
  {
    const std::lock_guard lock(mutex_);
    has_ended_ = true;
  }
  note("done");
}

void Successor::settle(LeftWork& work) {
  auto finished = guarded([&] { return finish(work); });
  // That is no failure: the process that took the run over goes on from an older step.
  const bool is_taken_over = !finished && finished.error().code() == ErrorCode::kFenced;
  if (is_taken_over) log_note(fmt::format("{}: {}", work.run, finished.error().message()));
  if (is_taken_over) finished = LeftOutcome::kDropped;
  work.arena = UniqueFd();  // its memory is the next trainer's
  work.handover = UniqueFd();
  {
    const std::lock_guard lock(mutex_);
    has_settled_ = true;
    if (finished) {
      report_.outcome = to_string(*finished);
    } else {
      report_.error = finished.error().message();
    }
  }
  if (!finished) log_warning(fmt::format("{}: {}", work.run, finished.error().message()));
  if (finished && *finished != LeftOutcome::kNothing) {
    log_note(fmt::format("{}: the save that process {} left: {}", work.run, work.process,
                         to_string(*finished)));
  }
}

void Successor::flush_and_note(const LeftWork& work) {
  const auto flushed = guarded([&]() -> Result<LeftOutcome> {
    DF_TRY_VOID(flush(work));
    return LeftOutcome::kNothing;
  });
  if (!flushed) log_warning(fmt::format("{}: {}", work.run, flushed.error().message()));
  const std::lock_guard lock(mutex_);
  if (!flushed && report_.error.empty()) report_.error = flushed.error().message();
  has_flushed_ = true;
}

Result<LeftOutcome> Successor::finish(LeftWork& work) {
  if (!work.handover.valid()) return LeftOutcome::kNothing;
  DF_TRY(const LeftSave left, read_handover(work.handover.get()));
  if (work.leader) take_leaders_place(work, left);
  if (left.state == HandoverState::kNone) return LeftOutcome::kNothing;
  SharedMemory arena;
  if (left.state == HandoverState::kCaptured && work.arena.valid()) {
    DF_TRY(arena, SharedMemory::map(std::move(work.arena)));
  }
  DF_TRY(const auto vfs, open_posix_vfs(work.run));
  DF_TRY(const IoMode mode, io_mode_from_environment());
  DF_TRY(const auto write_engine, WriteEngine::open({.mode = mode}));
  Others others{.wait = [this] { return is_awaited_.load(); }, .is_on_nodes = work.is_on_nodes};
  if (heir_) {
    others.commit_node = [&](const Identity& identity, std::optional<Error> failure) {
      return commit_with_nodes(left, identity, std::move(failure));
    };
  }
  return finish_left_save(*vfs, left, arena.bytes(), *write_engine, others);
}

// Before the save is written: links come up meanwhile. Without the leader's place the save is
// sealed, and the next job decides about it.
void Successor::take_leaders_place(LeftWork& work, const LeftSave& left) {
  std::optional<Identity> identity;
  if (left.state != HandoverState::kNone) identity = left.files.front().header.identity;
  auto near = open_posix_vfs(work.run);
  auto handover = std::exchange(work.leader, std::nullopt);  // the key goes with it
  auto heir = near ? LeaderHeir::start({.handover = *std::move(handover),
                                        .listener = std::move(work.listener),
                                        .identity = std::move(identity)},
                                       *std::move(near))
                   : std::unexpected(near.error());
  if (heir) {
    heir_ = *std::move(heir);
  } else {
    log_warning(
        fmt::format("{}: nobody speaks for this node: {}", work.run, heir.error().message()));
  }
}

Result<Manifest> Successor::commit_with_nodes(const LeftSave& left, const Identity& identity,
                                              std::optional<Error> failure) {
  return heir_->commit(
      {.identity = identity,
       .commit_wait_max = left.commit_wait_max,
       .failure = std::move(failure)},
      {.is_awaited = [this] { return is_awaited_.load(); }, .quiet_max = Others().quiet_max});
}

// Another leader may have lost its answer with its process, and its heir asks again.
void Successor::answer_nodes() {
  if (!heir_ || !heir_->decides()) return;
  note("answering other nodes");
  const auto begun = Monotonic::now();
  auto heard = begun;
  while (!is_over() && Monotonic::now() - heard < kAskedQuiet &&
         Monotonic::now() - begun < kAskedMax) {
    if (heir_->answer(kLookPause)) heard = Monotonic::now();
  }
}

// The trainer's machine may have had a library that this process lacks: plain copies are better
// than none.
std::vector<Tier> packable(std::vector<Tier> tiers) {
  for (Tier& tier : tiers) {
    if (tier.compress == Compress::kNone || check_packing()) continue;
    log_warning(fmt::format("tier {}: files are sent as they are, without libzstd", tier.path));
    tier.compress = Compress::kNone;
  }
  return tiers;
}

// It copies like the trainer's own flusher, but deletes nothing anywhere: that is for the next
// trainer, which may have other rules.
Status Successor::flush(const LeftWork& work) {
  if (work.tiers.empty() || is_told_to_end()) return {};
  DF_TRY(std::vector<FarTier> tiers, open_tiers(work.run, packable(work.tiers), false));
  Flusher::Settings settings;
  settings.open_near = [run = work.run] { return open_posix_vfs(run); };
  settings.tiers = std::move(tiers);
  settings.share = work.is_on_nodes ? FlushShare::kOfNode : FlushShare::kAll;
  settings.deletes_far = work.is_rank0;
  const auto flusher = Flusher::start(std::move(settings));
  std::uint64_t seen = taken(*flusher);
  auto progressed = Monotonic::now();
  Status drained;
  while (!is_told_to_end()) {
    if (heir_ && heir_->decides()) std::ignore = heir_->answer(std::chrono::milliseconds(0));
    drained = flusher->drain(kLookPause);
    if (drained || drained.error().code() != ErrorCode::kTimeout) break;
    if (const std::uint64_t now = taken(*flusher); now != seen) {
      seen = now;
      progressed = Monotonic::now();
    }
    if (Monotonic::now() - progressed > kFlushIdleMax) break;
  }
  flusher->stop();
  return is_told_to_end() ? Status{} : drained;
}

void Successor::note(std::string state) {
  {
    const std::lock_guard lock(mutex_);
    report_.state = std::move(state);
  }
  on_change_();
}

bool Successor::has_settled() const {
  const std::lock_guard lock(mutex_);
  return has_settled_;
}

bool Successor::has_flushed() const {
  const std::lock_guard lock(mutex_);
  return has_flushed_;
}

bool Successor::has_ended() const {
  const std::lock_guard lock(mutex_);
  return has_ended_;
}

void Successor::end_flush() {
  const std::lock_guard lock(mutex_);
  ends_flush_ = true;
}

bool Successor::is_told_to_end() const {
  const std::lock_guard lock(mutex_);
  return ends_flush_;
}

bool Successor::is_over() const {
  const std::lock_guard lock(mutex_);
  return is_over_;
}

AgentClient Successor::report() const {
  const std::lock_guard lock(mutex_);
  return report_;
}

}  // namespace deepfreeze

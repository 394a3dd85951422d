#include "agent/successor.h"

#include <fmt/format.h>

#include <exception>
#include <numeric>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/named_threads.h"
#include "base/try.h"
#include "ipc/shared_memory.h"
#include "storage/posix_vfs.h"
#include "tiering/open_tiers.h"

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
  thread_.join();
}

void Successor::work(LeftWork work) {
  enter_own_thread("df-successor");
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
  note("flushing");
  const auto flushed = guarded([&]() -> Result<LeftOutcome> {
    DF_TRY_VOID(flush(work));
    return LeftOutcome::kNothing;
  });
  if (!flushed) log_warning(fmt::format("{}: {}", work.run, flushed.error().message()));
  {
    const std::lock_guard lock(mutex_);
    if (!flushed && report_.error.empty()) report_.error = flushed.error().message();
    has_ended_ = true;
  }
  note("done");
}

Result<LeftOutcome> Successor::finish(LeftWork& work) {
  if (!work.handover.valid()) return LeftOutcome::kNothing;
  DF_TRY(const LeftSave left, read_handover(work.handover.get()));
  if (left.state == HandoverState::kNone) return LeftOutcome::kNothing;
  SharedMemory arena;
  if (left.state == HandoverState::kCaptured && work.arena.valid()) {
    DF_TRY(arena, SharedMemory::map(std::move(work.arena)));
  }
  DF_TRY(const auto vfs, open_posix_vfs(work.run));
  DF_TRY(const IoMode mode, io_mode_from_environment());
  DF_TRY(const auto write_engine, WriteEngine::open({.mode = mode}));
  return finish_left_save(*vfs, left, arena.bytes(), *write_engine,
                          {.wait = [this] { return is_awaited_.load(); }});
}

// The same as the trainer's own flusher does, but nothing is deleted anywhere: that is for the next
// trainer, which may have other rules.
Status Successor::flush(const LeftWork& work) {
  if (work.tiers.empty() || is_told_to_end()) return {};
  DF_TRY(std::vector<FarTier> tiers, open_tiers(work.run, work.tiers, false));
  Flusher::Settings settings;
  settings.open_near = [run = work.run] { return open_posix_vfs(run); };
  settings.tiers = std::move(tiers);
  const auto flusher = Flusher::start(std::move(settings));
  std::uint64_t seen = taken(*flusher);
  auto progressed = Monotonic::now();
  Status drained;
  while (!is_told_to_end()) {
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

AgentClient Successor::report() const {
  const std::lock_guard lock(mutex_);
  return report_;
}

}  // namespace deepfreeze

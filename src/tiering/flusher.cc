#include "tiering/flusher.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/named_threads.h"
#include "base/try.h"
#include "manifest/claims.h"
#include "manifest/commit.h"
#include "manifest/retention.h"
#include "tiering/flush.h"
#include "tiering/history_copy.h"

namespace deepfreeze {
namespace {

// No later try can succeed.
bool is_final(const Error& error) {
  return error.code() == ErrorCode::kFenced || error.code() == ErrorCode::kMismatch;
}

}  // namespace

// Each thread keeps the flusher alive, because one that hangs may outlive its owner; the owner's
// pointer stops it.
std::shared_ptr<Flusher> Flusher::start(Settings settings) {
  const auto flusher = std::make_shared<Flusher>(std::move(settings));
  std::shared_ptr<Flusher> owner(flusher.get(), [flusher](Flusher* owned) { owned->stop(); });
  for (std::size_t i = 0; i < flusher->workers_.size(); ++i) {
    flusher->workers_[i]->thread = std::thread([flusher, i] { flusher->work(i); });
  }
  return owner;
}

Flusher::Flusher(Settings settings) : settings_(std::move(settings)) {
  for (FarTier& tier : settings_.tiers) {
    auto worker = std::make_unique<Worker>(std::move(tier));
    worker->report.place = worker->tier.place;
    workers_.push_back(std::move(worker));
  }
}

Flusher::~Flusher() = default;

void Flusher::stop(std::chrono::milliseconds patience) {
  stop_.store(true, std::memory_order_relaxed);
  for (const auto& worker : workers_) {
    worker->rate.stop();
    worker->tier.store->stop();
  }
  std::unique_lock lock(mutex_);
  if (std::exchange(is_stopped_, true)) return;
  changed_.notify_all();
  changed_.wait_for(lock, patience, [this] {
    return std::ranges::all_of(workers_, [](const auto& worker) {
      return worker->has_ended || !worker->thread.joinable();
    });
  });
  for (const auto& worker : workers_) {
    if (!worker->thread.joinable()) continue;
    if (worker->has_ended) {
      std::thread ended = std::move(worker->thread);
      lock.unlock();
      ended.join();
      lock.lock();
      continue;
    }
    worker->thread.detach();
    log_warning(worker->tier.place + " does not answer: a copy to it is left behind");
  }
}

void Flusher::wake() {
  const std::lock_guard lock(mutex_);
  for (const auto& worker : workers_) worker->give_work();
  changed_.notify_all();
}

std::uint64_t Flusher::wakes_of(std::size_t number) const {
  const std::lock_guard lock(mutex_);
  return workers_[number]->wakes;
}

// False: the flusher stops.
bool Flusher::await_work(Worker& worker) {
  std::unique_lock lock(mutex_);
  while (!is_stopping() && !(worker.has_work && Monotonic::now() >= worker.next_try)) {
    if (worker.has_work) {
      changed_.wait_until(lock, worker.next_try);
    } else {
      changed_.wait(lock);
    }
  }
  return !is_stopping();
}

void Flusher::work(std::size_t number) {
  enter_own_thread("df-flush");
  step_aside();
  while (await_work(*workers_[number])) {
    const std::uint64_t wakes = wakes_of(number);
    note_pass(number, wakes, try_pass(number));
  }
  const std::lock_guard lock(mutex_);
  workers_[number]->has_ended = true;
  changed_.notify_all();
}

Status Flusher::try_pass(std::size_t number) {
  try {
    return settings_.commits ? pass(number) : watch(number);
  } catch (const std::exception& cause) {
    return fail(ErrorCode::kNoSpace, std::string("the system refuses memory: ") + cause.what());
  }
}

void Flusher::note_pass(std::size_t number, std::uint64_t wakes, const Status& done) {
  Worker& worker = *workers_[number];
  bool is_news = false;
  {
    const std::lock_guard lock(mutex_);
    TierReport& report = worker.report;
    const auto copied = std::exchange(report.copying, std::nullopt);
    report.bytes_sent = 0;
    worker.progressed = Monotonic::now();
    if (done) {
      worker.failed_copy.reset();
      worker.recover();
      worker.has_work = worker.wakes != wakes;
    } else if (done.error().code() == ErrorCode::kGone) {  // the next look does without it
      worker.next_try = Monotonic::now() + kFlushPauseMin;
    } else if (done.error().code() == ErrorCode::kBusy) {  // this node has done its share
      worker.next_try = Monotonic::now() + std::min(worker.pause, kWatchPauseMax);
      worker.pause = std::min(2 * worker.pause, kFlushPauseMax);
    } else if (done.error().code() != ErrorCode::kCancelled) {
      const bool is_over = is_final(done.error());
      is_news = !std::exchange(worker.is_told, true) || (is_over && !report.is_over);
      report.is_over = is_over;
      report.error = done.error();
      worker.failed_copy = copied;
      ++report.failures;
      worker.next_try = Monotonic::now() + worker.pause;
      worker.pause = std::min(2 * worker.pause, kFlushPauseMax);
      // Only a claim of our own, or a restore, changes that: it is looked at again at the next one.
      if (is_over) worker.has_work = worker.wakes != wakes;
    }
    changed_.notify_all();
  }
  if (!done && is_final(done.error())) end_tier(number, done.error());
  if (!is_news) return;
  log_warning("checkpoints wait to be copied to " + worker.tier.place + ": " +
              done.error().message());
}

// No caller shall wait for ever.
void Flusher::end_tier(std::size_t number, const Error& error) const {
  if (!settings_.awaited) return;
  for (const AttemptName& name : settings_.awaited(number)) {
    tell(name, number, Fate::kLeftOut, error.message());
  }
}

// In this order: an attempt that is awaited is committed on the first tier already, so the listing
// that comes later has it, or it was deleted.
Result<Flusher::Round> Flusher::begin_round(std::size_t number) {
  Round round{.number = number,
              .wakes = wakes_of(number),
              .awaited = settings_.awaited ? settings_.awaited(number) : std::vector<AttemptName>(),
              .near = nullptr,
              .listing = nullptr};
  DF_TRY(round.near, settings_.open_near());
  DF_TRY(RunListing listing, read_run(*round.near));
  round.listing = std::make_shared<RunListing>(std::move(listing));
  return round;
}

Status Flusher::look(Round& round) {
  Worker& worker = *workers_[round.number];
  DF_TRY(const bool in_place, worker.tier.store->view().is_in_place());
  if (!in_place) {
    return fail(ErrorCode::kIo,
                worker.tier.place + " was moved or replaced while it was open: open the run anew");
  }
  DF_TRY(RunListing there, copy_history(*round.listing, *round.near, *worker.tier.store));
  DF_TRY_VOID(settle_seen(round, there));
  mend_manifests(round, there);
  const std::lock_guard lock(mutex_);
  const auto before = std::exchange(worker.listing, std::make_shared<RunListing>(std::move(there)));
  for (std::size_t farther = round.number + 1; farther < workers_.size(); ++farther) {
    // This tier may have a copy that the nearest one has not.
    std::vector<AttemptName>& unreadable = workers_[farther]->report.unreadable;
    const auto erased = std::erase_if(unreadable, [&](const AttemptName& name) {
      return is_committed_in(*worker.listing, name) && !is_committed_in(*before, name);
    });
    if (erased > 0) workers_[farther]->give_work();
  }
  changed_.notify_all();
  return {};
}

// The process that committed an attempt there may have died before its last sync. Only attempts
// that a nearer tier could delete for it matter.
Status Flusher::settle_seen(const Round& round, RunListing& there) {
  Worker& worker = *workers_[round.number];
  for (const AttemptState& attempt : there.attempts) {
    if (!attempt.committed() || is_among(worker.settled, attempt.name)) continue;
    const Status settled = worker.tier.store->settle(attempt_dir_name(attempt.name));
    if (!settled && settled.error().code() == ErrorCode::kNotFound) continue;  // deleted meanwhile
    DF_TRY_VOID(settled);
    worker.settled.push_back(attempt.name);
  }
  std::erase_if(worker.settled,
                [&](const AttemptName& name) { return !is_committed_in(there, name); });
  return {};
}

// Until nothing waits; each round looks at the tiers anew, so that the newest attempt goes first.
Status Flusher::pass(std::size_t number) {
  while (!is_stopping()) {
    DF_TRY(Round round, begin_round(number));
    if (number == 0) mend_all(*round.near);
    const Status looked = look(round);
    const std::vector<Manifest> waiting = due(round);  // counted while the tier is away, too
    DF_TRY_VOID(looked);
    tell_awaited(round, waiting);
    const Status brought = bring_all(round, waiting);
    collect(round);  // after a failure, too: it may have been for want of space
    DF_TRY_VOID(brought);
    if (waiting.empty()) return {};
  }
  return {};
}

// For a rank that does not commit: the tier as it is now, perhaps without a run yet.
Status Flusher::look_only(const Round& round, std::size_t number) {
  Vfs& view = workers_[number]->tier.store->view();
  auto there = read_run(view);
  if (!there && there.error().code() == ErrorCode::kNotFound) there = RunListing{};
  if (!there) return std::unexpected(there.error());
  DF_TRY_VOID(check_same_history(*round.near, view));
  if (number == round.number) DF_TRY_VOID(settle_seen(round, *there));
  const std::lock_guard lock(mutex_);
  workers_[number]->listing = std::make_shared<RunListing>(*std::move(there));
  return {};
}

std::vector<Manifest> Flusher::due(const Round& round) const {
  std::vector<Manifest> waiting = waiting_for(seen(round.listing), round.number + 1);
  const auto is_gone = [&](const AttemptName& name) {
    return std::ranges::none_of(
        waiting, [&](const Manifest& manifest) { return name_of(manifest) == name; });
  };
  const std::lock_guard lock(mutex_);
  Worker& worker = *workers_[round.number];
  TierReport& report = worker.report;
  std::erase_if(report.unreadable, is_gone);
  if (worker.failed_copy && is_gone(*worker.failed_copy)) worker.failed_copy.reset();
  std::erase_if(waiting, [&](const Manifest& manifest) {
    return is_among(report.unreadable, name_of(manifest));
  });
  report.waiting = waiting.size();
  return waiting;
}

void Flusher::tell_awaited(const Round& round, std::span<const Manifest> waiting) const {
  const std::vector<TierSeen> tiers = seen(round.listing);
  for (const AttemptName& name : round.awaited) {
    const bool waits = std::ranges::any_of(
        waiting, [&](const Manifest& manifest) { return name_of(manifest) == name; });
    if (waits) continue;
    if (is_committed_in(*tiers[round.number + 1].listing, name)) {
      tell(name, round.number, Fate::kCommitted, "");
    } else if (is_committed_in(*round.listing, name)) {
      tell(name, round.number, Fate::kLeftOut,
           "by its rules it would not stay there, or no copy of it verifies");
    } else {
      tell(name, round.number, Fate::kLeftOut,
           "newer steps went first, and it has been deleted since");
    }
  }
}

void Flusher::tell(const AttemptName& name, std::size_t tier, Fate fate,
                   std::string_view why) const {
  if (settings_.tell) settings_.tell(name, tier, fate, why);
}

// The error of a tier that is over: nobody has looked at it since.
Status Flusher::still_over(std::size_t number) const {
  const std::lock_guard lock(mutex_);
  const TierReport& report = workers_[number]->report;
  return report.is_over ? std::unexpected(*report.error) : Status{};
}

// Until all that is awaited has been seen.
Status Flusher::watch(std::size_t number) {
  std::chrono::milliseconds pause = kFlushPauseMin;
  while (!is_stopping()) {
    DF_TRY(Round round, begin_round(number));
    if (number == 0) mend_all(*round.near);
    if (round.awaited.empty()) return still_over(number);
    for (std::size_t i = 0; i <= number; ++i) DF_TRY_VOID(look_only(round, i));
    tell_awaited(round, due(round));
    std::unique_lock lock(mutex_);
    if (!is_stopping()) changed_.wait_for(lock, pause);
    pause = std::min(2 * pause, kWatchPauseMax);
  }
  return {};
}

// Returns `error` until others have had their time: then it is a failure, kIncomplete.
Error Flusher::waiting_for_others(Worker& worker, const Manifest& manifest,
                                  const Error& error) const {
  const AttemptName name = name_of(manifest);
  const auto now = Monotonic::now();
  auto known = std::ranges::find(worker.shared, name, [](const auto& one) { return one.first; });
  if (known == worker.shared.end()) known = worker.shared.insert(known, {name, now});
  if (now - known->second <= settings_.share_wait_max) return error;
  return {ErrorCode::kIncomplete, error.message(), error.os_errno()};
}

// A commit in between is newer, and goes first. An attempt that other nodes have to complete holds
// up no other.
Status Flusher::bring_all(const Round& round, std::span<const Manifest> waiting) {
  Status waits;
  for (const Manifest& manifest : waiting) {
    {
      const std::lock_guard lock(mutex_);
      Worker& worker = *workers_[round.number];
      if (worker.wakes != round.wakes) return {};
      worker.report.copying = name_of(manifest);
      worker.report.bytes_sent = 0;
    }
    const Status brought = bring(round, manifest);
    const ErrorCode code = brought ? ErrorCode::kBusy : brought.error().code();
    if (code != ErrorCode::kBusy && code != ErrorCode::kIncomplete) return brought;
    if (!brought && (waits || code == ErrorCode::kIncomplete)) waits = brought;
    if (&manifest != &waiting.back()) collect_near(round);  // a save may wait for room
  }
  return waits;
}

Status Flusher::bring(const Round& round, const Manifest& manifest) {
  const std::vector<TierSeen> tiers = seen(round.listing);
  const Status brought = copy_from_nearest(round, manifest, tiers);
  if (brought) {
    note_brought(round.number, manifest);
    if (is_among(round.awaited, name_of(manifest))) {
      tell(name_of(manifest), round.number, Fate::kCommitted, "");
    }
    return {};
  }
  if (brought.error().code() != ErrorCode::kCorrupt) return brought;
  note_unreadable(round, manifest, tiers, brought.error());
  return {};
}

void Flusher::note_brought(std::size_t number, const Manifest& manifest) {
  Worker& worker = *workers_[number];
  worker.settled.push_back(name_of(manifest));
  std::erase_if(worker.shared, [&](const auto& one) { return one.first == name_of(manifest); });
  const std::lock_guard lock(mutex_);
  auto listing = std::make_shared<RunListing>(*worker.listing);
  std::erase_if(listing->attempts, [&](const AttemptState& attempt) {
    return attempt.name == name_of(manifest);  // as it was before
  });
  listing->attempts.push_back({.name = name_of(manifest), .manifest = manifest, .fault = {}});
  worker.listing = std::move(listing);
  worker.report.copying.reset();
  ++worker.report.committed;
  worker.recover();
  for (std::size_t farther = number + 1; farther < workers_.size(); ++farther) {
    workers_[farther]->give_work();
  }
  changed_.notify_all();
}

// Other attempts are not held up by it.
void Flusher::note_unreadable(const Round& round, const Manifest& manifest,
                              std::span<const TierSeen> tried, const Error& error) {
  {
    const std::lock_guard lock(mutex_);
    Worker& worker = *workers_[round.number];
    for (std::size_t i = 0; i < round.number; ++i) {
      // A tier that was not seen to have it when the copies were tried, and is now.
      const bool was_tried = is_committed_in(*tried[i + 1].listing, name_of(manifest));
      if (was_tried || !is_committed_in(*workers_[i]->listing, name_of(manifest))) continue;
      worker.give_work();
      return;
    }
    worker.report.unreadable.push_back(name_of(manifest));
  }
  log_warning(error.message());
  if (is_among(round.awaited, name_of(manifest))) {
    tell(name_of(manifest), round.number, Fate::kLeftOut, error.message());
  }
}

// The nearest copy that verifies.
Status Flusher::copy_from_nearest(const Round& round, const Manifest& manifest,
                                  std::span<const TierSeen> tiers) {
  Worker& worker = *workers_[round.number];
  const CopySettings settings = {.rate = worker.rate,
                                 .stop = stop_,
                                 .on_bytes =
                                     [&](std::uint64_t bytes, std::uint64_t sent) {
                                       const std::lock_guard lock(mutex_);
                                       worker.report.note_sent(bytes, sent);
                                       worker.progressed = Monotonic::now();
                                     },
                                 .packing = worker.packing(),
                                 .there = tiers[round.number + 1].listing.get()};
  std::optional<Error> passing;  // rather than this one: it may be over at the next try
  std::optional<Error> last;
  for (std::size_t source = 0; source <= round.number; ++source) {
    if (!is_committed_in(*tiers[source].listing, name_of(manifest))) continue;
    if (source > 0 && settings_.share == FlushShare::kOfNode && !settings_.deletes_far) {
      const Error later(ErrorCode::kBusy, "rank 0's node copies it from a nearer tier");
      passing = waiting_for_others(worker, manifest, later);
      break;
    }
    Vfs& from = source == 0 ? *round.near : workers_[source - 1]->tier.store->view();
    const FlushShare share = source == 0 ? settings_.share : FlushShare::kAll;
    const Status brought =
        flush_attempt(from, manifest, *worker.tier.store, settings, round.near.get(), share);
    if (brought || is_final(brought.error()) || is_stopping()) return brought;
    last = brought.error();
    if (last->code() == ErrorCode::kBusy) last = waiting_for_others(worker, manifest, *last);
    if (last->code() != ErrorCode::kCorrupt && last->code() != ErrorCode::kGone) passing = last;
  }
  if (passing) return std::unexpected(*passing);
  if (last) return std::unexpected(*last);
  return fail(ErrorCode::kGone, "no nearer tier has it any more");
}

std::vector<TierSeen> Flusher::seen(const std::shared_ptr<const RunListing>& near) const {
  std::vector<TierSeen> tiers = {{{}, settings_.near_keep, near}};
  const std::lock_guard lock(mutex_);
  for (const auto& worker : workers_) {
    tiers.push_back({worker->tier.every, worker->tier.keep, worker->listing});
  }
  return tiers;
}

}  // namespace deepfreeze

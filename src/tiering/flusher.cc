#include "tiering/flusher.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/log.h"
#include "base/named_threads.h"
#include "base/try.h"
#include "manifest/retention.h"
#include "tiering/flush.h"
#include "tiering/history_copy.h"

namespace deepfreeze {
namespace {

// No later try can succeed.
bool is_final(const Error& error) {
  return error.code() == ErrorCode::kFenced || error.code() == ErrorCode::kMismatch;
}

// Longer waits would overflow the clock that they are added to.
constexpr std::chrono::milliseconds kDrainMax = std::chrono::hours(24 * 365);

}  // namespace

Flusher::Flusher(Settings settings)
    : near_(settings.near),
      near_store_(settings.near),
      on_committed_(std::move(settings.on_committed)),
      is_awaited_(std::move(settings.is_awaited)) {
  for (FarTier& tier : settings.tiers) {
    auto worker = std::make_unique<Worker>(std::move(tier));
    worker->report.place = worker->tier.place;
    workers_.push_back(std::move(worker));
  }
  try {
    for (std::size_t i = 0; i < workers_.size(); ++i) {
      workers_[i]->thread = std::thread([this, i] { work(i); });
    }
  } catch (const std::exception&) {  // no thread: those that run must end before their workers go
    stop();
    throw;
  }
}

void Flusher::stop() {
  stop_.store(true, std::memory_order_relaxed);
  {
    const std::lock_guard lock(mutex_);  // a thread that has just looked must not miss it
    changed_.notify_all();
  }
  for (const auto& worker : workers_) worker->rate.stop();
  for (const auto& worker : workers_) {
    if (worker->thread.joinable()) worker->thread.join();
  }
}

void Flusher::wake() {
  const std::lock_guard lock(mutex_);
  for (const auto& worker : workers_) {
    worker->has_work = true;
    ++worker->wakes;
  }
  changed_.notify_all();
}

// False: the flusher stops.
bool Flusher::await_work(Worker& worker) {
  std::unique_lock lock(mutex_);
  const auto is_due = [&] {
    return worker.has_work && !worker.report.is_over && Monotonic::now() >= worker.next_try;
  };
  while (!stop_.load(std::memory_order_relaxed) && !is_due()) {
    if (worker.has_work && !worker.report.is_over) {
      changed_.wait_until(lock, worker.next_try);
    } else {
      changed_.wait(lock);
    }
  }
  return !stop_.load(std::memory_order_relaxed);
}

void Flusher::work(std::size_t number) {
  enter_own_thread("df-flush");
  Worker& worker = *workers_[number];
  while (await_work(worker)) {
    std::uint64_t wakes = 0;
    {
      const std::lock_guard lock(mutex_);
      wakes = worker.wakes;
    }
    Status done;
    try {
      if (number == 0) mend_all();
      done = is_awaited_ ? watch(number) : pass(number);
    } catch (const std::exception& cause) {
      done = fail(ErrorCode::kNoSpace, fmt::format("the system refuses memory: {}", cause.what()));
    }
    note_pass(worker, wakes, done);
  }
}

void Flusher::note_pass(Worker& worker, std::uint64_t wakes, const Status& done) {
  bool is_first = false;
  {
    const std::lock_guard lock(mutex_);
    TierReport& report = worker.report;
    report.copying.reset();
    report.bytes_sent = 0;
    if (done) {
      report.error.reset();
      worker.pause = kFlushPauseMin;
      worker.has_work = worker.wakes != wakes;
    } else if (done.error().code() != ErrorCode::kCancelled) {
      is_first = !report.error;
      report.error = done.error();
      ++report.failures;
      report.is_over = is_final(done.error());
      worker.next_try = Monotonic::now() + worker.pause;
      worker.pause = std::min(2 * worker.pause, kFlushPauseMax);
    }
    changed_.notify_all();
  }
  if (!is_first) return;
  log_warning(fmt::format("checkpoints wait to be copied to {}: {}", worker.tier.place,
                          done.error().message()));
}

void Flusher::mend(Mend wanted) {
  const std::lock_guard lock(mutex_);
  if (mends_.size() == kMendsMax) return;  // the next restore comes upon the rest
  mends_.push_back(std::move(wanted));
  workers_.front()->has_work = true;
  ++workers_.front()->wakes;
  changed_.notify_all();
}

void Flusher::mend_all() {
  std::vector<Mend> mends;
  {
    const std::lock_guard lock(mutex_);
    std::swap(mends, mends_);
  }
  for (const Mend& wanted : mends) {
    const Status mended = mend_one(wanted);
    const std::string place = fmt::format("{} of step {} on {}", wanted.file.name,
                                          wanted.manifest.point.step, view(wanted.bad).path_of(""));
    if (mended) {
      log_note(fmt::format("mended {} from another tier", place));
    } else {
      log_warning(fmt::format("{} stays damaged: {}", place, mended.error().message()));
    }
  }
}

// From the nearest tier that has a good copy. Nothing good is replaced: the copy that arrives has
// been verified, and has the bytes that the bad one should have.
Status Flusher::mend_one(const Mend& wanted) {
  Status last = fail(ErrorCode::kIncomplete, "no tier has a good copy");
  for (std::size_t tier = 0; tier <= workers_.size(); ++tier) {
    if (tier == wanted.bad) continue;
    last = copy_sealed_file({.from = view(tier),
                             .manifest = wanted.manifest,
                             .file = wanted.file,
                             .to = store(wanted.bad),
                             .if_taken = IfTaken::kReplace},
                            {.rate = workers_.front()->rate, .stop = stop_});
    if (last) return store(wanted.bad).settle(attempt_dir_name(name_of(wanted.manifest)));
  }
  return last;
}

Vfs& Flusher::view(std::size_t tier) { return store(tier).view(); }

TierStore& Flusher::store(std::size_t tier) {
  return tier == 0 ? near_store_ : *workers_[tier - 1]->tier.store;
}

// Until nothing waits; each round looks at the tiers anew, so that the newest attempt goes first.
Status Flusher::pass(std::size_t number) {
  Worker& worker = *workers_[number];
  while (true) {
    DF_TRY(const RunListing near, read_run(near_));
    DF_TRY(RunListing there, copy_history(near, near_, *worker.tier.store));
    {
      const std::lock_guard lock(mutex_);
      worker.listing = std::move(there);
    }
    std::vector<Manifest> waiting = waiting_for(seen(near), number + 1);
    std::erase_if(waiting, [&](const Manifest& manifest) {
      return is_among(worker.unreadable, name_of(manifest));
    });
    {
      const std::lock_guard lock(mutex_);
      worker.report.waiting = waiting.size();
      if (!waiting.empty()) worker.report.copying = name_of(waiting.front());
      worker.report.bytes_sent = 0;
    }
    if (waiting.empty()) return {};
    DF_TRY_VOID(bring(number, near, waiting.front()));
  }
}

// Until all that is awaited has been seen.
Status Flusher::watch(std::size_t number) {
  while (is_awaited_(number)) {
    DF_TRY(const RunListing there, read_run(view(number + 1)));
    for (const AttemptState& attempt : there.attempts) {
      if (attempt.committed()) on_committed_(attempt.name, number);
    }
    std::unique_lock lock(mutex_);
    if (stop_.load(std::memory_order_relaxed)) break;
    if (is_awaited_(number)) changed_.wait_for(lock, kWatchPause);
  }
  return {};
}

Status Flusher::bring(std::size_t number, const RunListing& near, const Manifest& manifest) {
  Worker& worker = *workers_[number];
  const Status brought = copy_from_nearest(number, near, manifest);
  if (!brought && brought.error().code() == ErrorCode::kGone) return {};  // listed anew
  if (!brought && brought.error().code() == ErrorCode::kCorrupt) {
    // The next attempts are not held up by it.
    worker.unreadable.push_back(name_of(manifest));
    log_warning(brought.error().message());
    return {};
  }
  DF_TRY_VOID(brought);
  {
    const std::lock_guard lock(mutex_);
    ++worker.report.committed;
    for (std::size_t farther = number + 1; farther < workers_.size(); ++farther) {
      workers_[farther]->has_work = true;
      ++workers_[farther]->wakes;
    }
    worker.listing.attempts.push_back(
        {.name = name_of(manifest), .manifest = manifest, .fault = {}});
    changed_.notify_all();
  }
  if (on_committed_) on_committed_(name_of(manifest), number);
  collect(number, near);
  return {};
}

Status Flusher::copy_from_nearest(std::size_t number, const RunListing& near,
                                  const Manifest& manifest) {
  Worker& worker = *workers_[number];
  const std::vector<TierSeen> tiers = seen(near);
  std::size_t source = 0;
  while (source < number && !is_committed_in(tiers[source].listing, name_of(manifest))) ++source;
  Vfs& from = view(source);
  const CopySettings settings = {
      .rate = worker.rate, .stop = stop_, .on_bytes = [&](std::uint64_t bytes) {
        const std::lock_guard lock(mutex_);
        worker.report.bytes_sent += bytes;
        worker.report.bytes_total += bytes;
      }};
  return flush_attempt(from, manifest, *worker.tier.store, settings);
}

// By the tier's own rules; a deletion here never follows from one on another tier.
void Flusher::collect(std::size_t number, const RunListing& near) {
  Worker& worker = *workers_[number];
  const Keep& keep = worker.tier.keep;
  if (!keep.last && !keep.every && !keep.best) return;
  const auto held = [&](const RunListing&) { return held_on(seen(near), number + 1); };
  const auto collected = collect_garbage(worker.tier.store->view(), keep, {.held = held});
  if (collected) return;
  log_warning(fmt::format("old checkpoints stay on {}: {}", worker.tier.place,
                          collected.error().message()));
}

std::vector<TierSeen> Flusher::seen(const RunListing& near) const {
  std::vector<TierSeen> tiers = {{.every = {}, .keep = {}, .listing = near}};
  const std::lock_guard lock(mutex_);
  for (const auto& worker : workers_) {
    tiers.push_back({worker->tier.every, worker->tier.keep, worker->listing});
  }
  return tiers;
}

std::vector<AttemptName> Flusher::held(const RunListing& near) const {
  return held_on(seen(near), 0);
}

void Flusher::note_deleted(std::span<const AttemptName> names) {
  const std::lock_guard lock(mutex_);
  for (const AttemptName& name : names) {
    for (const auto& worker : workers_) {
      if (is_committed_in(worker->listing, name)) break;  // farther tiers take it from this one
      const TierSeen tier = {worker->tier.every, worker->tier.keep, {}};
      if (is_meant_for(tier, name.step)) ++worker->report.left_out;
    }
  }
}

bool Flusher::is_drained() const {
  return std::ranges::all_of(
      workers_, [](const auto& worker) { return !worker->has_work || worker->report.is_over; });
}

Status Flusher::drained() const {
  for (const auto& worker : workers_) {
    if (worker->report.is_over) return std::unexpected(*worker->report.error);
  }
  return {};
}

std::string Flusher::behind() const {
  std::vector<std::string> tiers;
  for (const auto& worker : workers_) {
    if (!worker->has_work) continue;
    const auto& error = worker->report.error;
    tiers.push_back(fmt::format("{} waits for {} checkpoints{}", worker->tier.place,
                                worker->report.waiting, error ? ": " + error->message() : ""));
  }
  return fmt::format("{}", fmt::join(tiers, "; "));
}

Status Flusher::drain(std::chrono::milliseconds timeout, OnFailure on_failure) {
  wake();
  std::unique_lock lock(mutex_);
  std::vector<std::uint64_t> failures;
  for (const auto& worker : workers_) {
    worker->next_try = {};
    failures.push_back(worker->report.failures);
  }
  changed_.notify_all();
  const auto has_failed = [&](std::size_t i) {
    return on_failure == OnFailure::kGiveUp && workers_[i]->report.failures > failures[i];
  };
  const auto is_over = [&] {
    if (stop_.load(std::memory_order_relaxed)) return true;
    for (std::size_t i = 0; i < workers_.size(); ++i) {
      if (workers_[i]->has_work && !workers_[i]->report.is_over && !has_failed(i)) return false;
    }
    return true;
  };
  changed_.wait_for(lock, std::min<std::chrono::milliseconds>(timeout, kDrainMax), is_over);
  if (is_drained()) return drained();
  return fail(ErrorCode::kTimeout,
              behind() + ". The next process that opens the run, or `deepfreeze flush`, goes on");
}

std::vector<TierReport> Flusher::reports() const {
  const std::lock_guard lock(mutex_);
  std::vector<TierReport> reports;
  for (const auto& worker : workers_) reports.push_back(worker->report);
  return reports;
}

}  // namespace deepfreeze

// Flusher's deletions, on the first tier and on its own, and the attempts that others may not
// delete.
#include <algorithm>
#include <iterator>
#include <utility>

#include "base/log.h"
#include "manifest/claims.h"
#include "manifest/commit.h"
#include "manifest/retention.h"
#include "tiering/flush.h"
#include "tiering/flusher.h"
#include "tiering/history_copy.h"
#include "tiering/shared_files.h"

namespace deepfreeze {

// A process that has not saved yet, or was fenced, might delete attempts that another one wants.
bool Flusher::may_delete(const Round& round) const {
  const std::uint64_t generation = settings_.generation();
  return generation != 0 && !is_stopping() && check_not_fenced(*round.near, generation);
}

void Flusher::collect(const Round& round) {
  collect_near(round);  // first: it looks for copies on the tier that were listed there
  collect_far(round);
}

void Flusher::collect_near(const Round& round) {
  if (!has_rule(settings_.near_keep) || !may_delete(round)) return;
  const auto held = [&](const RunListing& listing) {
    const auto near = std::make_shared<RunListing>(listing);
    std::vector<AttemptName> names = held_by_tiers(near, false);
    std::ranges::copy(settings_.held(), std::back_inserter(names));
    // A listing may be old: the copy that the deletion relies on is looked for right before it.
    // Only on the tier of this thread: another one may hang, and its own thread looks there.
    const std::vector<TierSeen> tiers = seen(near);
    for (const AttemptName& name : expired(listing, settings_.near_keep)) {
      const bool is_here = is_committed_in(*tiers[round.number + 1].listing, name);
      const bool is_elsewhere =
          std::any_of(tiers.begin() + 1, tiers.end(),
                      [&](const TierSeen& tier) { return is_committed_in(*tier.listing, name); });
      if (is_here ? !is_there_now(round.number, name) : is_elsewhere) names.push_back(name);
    }
    return names;
  };
  const auto collected = collect_garbage(*round.near, settings_.near_keep, {.held = held});
  const bool is_told = std::exchange(workers_[round.number]->is_near_told, !collected);
  if (collected) return note_deleted(collected->removed);
  if (!is_told) log_warning("old checkpoints stay: " + collected.error().message());
}

// With its files: a store may have put a manifest late, after a deletion. A name may be there, and
// the file that it refers to gone.
bool Flusher::is_there_now(std::size_t number, const AttemptName& name) const {
  TierStore& store = *workers_[number]->tier.store;
  const auto manifest = read_manifest(store.view(), name, "");
  if (!manifest || !check_all_there(*manifest, store.view())) return false;
  return !store.takes_references() ||
         std::ranges::all_of(manifest->files, [&](const ManifestFile& file) {
           return !file.origin || has_sealed_file(store.view(), *manifest, file);
         });
}

// By the tier's own rules, and by claims that are of now; a deletion here never follows from one on
// another tier.
void Flusher::collect_far(const Round& round) {
  Worker& worker = *workers_[round.number];
  if (!settings_.deletes_far || !may_delete(round)) return;
  const bool has_rules = has_rule(worker.tier.keep) || settings_.share != FlushShare::kAll;
  if (!has_rules && worker.is_swept) return;
  const auto near = read_run(*round.near);
  if (!near) return;
  const auto there = copy_history(*near, *round.near, *worker.tier.store);
  if (!there) return;  // the next pass tells
  remove_partial(round, *there);
  sweep(worker, *there);
  if (!has_rules) return;
  const auto held = [&](const RunListing&) {
    return held_on(seen(round.listing), round.number + 1);
  };
  const auto collected =
      collect_garbage(worker.tier.store->view(), worker.tier.keep, {.held = held});
  if (collected && !collected->removed.empty()) {
    RunListing rest = *there;
    std::erase_if(rest.attempts, [&](const AttemptState& attempt) {
      return is_among(collected->removed, attempt.name);
    });
    worker.is_swept = false;
    sweep(worker, rest);
  }
  if (std::exchange(worker.is_far_told, !collected) || collected) return;
  log_warning("old checkpoints stay on " + worker.tier.place + ": " + collected.error().message());
}

// After deletions; and once, since another process may have died before it did.
void Flusher::sweep(Worker& worker, const RunListing& there) {
  if (worker.is_swept) return;
  const Status swept = sweep_shared_files(*worker.tier.store, there);
  worker.is_swept = swept.has_value();
  if (std::exchange(worker.is_sweep_told, !swept) || swept) return;
  log_warning("files that no checkpoint needs stay on " + worker.tier.place + ": " +
              swept.error().message());
}

// Copies that a flush has begun and nobody will complete: they would fill the tier. The first tier
// is listed after this one: other nodes begin to copy an attempt once it is committed there. If
// they have shares, only attempts of which this process has brought its own: others may be older
// than its near directory.
void Flusher::remove_partial(const Round& round, const RunListing& there) {
  if (std::ranges::none_of(there.attempts, &AttemptState::undecided)) return;
  auto near = read_run(*round.near);
  if (!near) return;
  Worker& worker = *workers_[round.number];
  Vfs& view = worker.tier.store->view();
  std::erase_if(worker.shared, [&](const auto& one) { return is_committed_in(there, one.first); });
  const std::vector<Manifest> waiting =
      waiting_for(seen(std::make_shared<RunListing>(*std::move(near))), round.number + 1);
  for (const AttemptState& attempt : there.attempts) {
    if (!attempt.undecided()) continue;
    const bool is_wanted = std::ranges::any_of(
        waiting, [&](const Manifest& manifest) { return name_of(manifest) == attempt.name; });
    const bool is_known = settings_.share == FlushShare::kAll ||
                          std::ranges::any_of(worker.shared, [&](const auto& one) {
                            return one.first == attempt.name;
                          });
    // Another node may have completed it since it was listed.
    if (is_wanted || !is_known || read_manifest(view, attempt.name, "")) continue;
    std::ignore = remove_attempt(view, attempt.name);
    worker.is_swept = false;
  }
}

bool Flusher::is_failing(const Worker& worker) const {
  return worker.report.error ||
         (worker.has_work && Monotonic::now() - worker.progressed > kStallMax);
}

// A tier that is over holds nothing. One that fails and has no rules, which would name everything,
// holds the newest alone: so space stays bounded.
std::vector<std::vector<AttemptName>> Flusher::held_by_each(
    const std::shared_ptr<const RunListing>& near) const {
  const std::vector<TierSeen> tiers = seen(near);
  const std::vector<AttemptName> waiting = held_on(tiers, 0);
  std::vector<std::vector<AttemptName>> held(workers_.size());
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    const TierReport& report = workers_[i]->report;
    if (report.is_over) continue;
    if (report.copying) held[i].push_back(*report.copying);
    std::vector<Manifest> due = waiting_for(tiers, i + 1);
    if (is_failing(*workers_[i]) && !has_rule(tiers[i + 1].keep) && due.size() > 1) due.resize(1);
    for (const Manifest& manifest : due) {
      if (is_among(waiting, name_of(manifest))) held[i].push_back(name_of(manifest));
    }
  }
  return held;
}

std::vector<AttemptName> Flusher::held_by_tiers(const std::shared_ptr<const RunListing>& near,
                                                bool with_committed) const {
  std::vector<AttemptName> held;
  for (const std::vector<AttemptName>& names : held_by_each(near)) {
    held.insert(held.end(), names.begin(), names.end());
  }
  if (!with_committed) return held;
  const std::lock_guard lock(mutex_);
  for (const auto& worker : workers_) {
    if (worker->report.is_over) continue;
    for (const AttemptState& attempt : worker->listing->attempts) held.push_back(attempt.name);
  }
  return held;
}

std::vector<AttemptName> Flusher::held(const RunListing& near) const {
  return held_by_tiers(std::make_shared<RunListing>(near), true);
}

// A tier without it by now gets it only from one before it that has it.
void Flusher::note_deleted(std::span<const AttemptName> names) {
  std::vector<std::pair<AttemptName, std::size_t>> lost;
  {
    const std::lock_guard lock(mutex_);
    for (const AttemptName& name : names) {
      for (std::size_t i = 0; i < workers_.size(); ++i) {
        Worker& worker = *workers_[i];
        if (is_committed_in(*worker.listing, name)) break;
        if (!is_meant_for({worker.tier.every, worker.tier.keep, worker.listing}, name.step))
          continue;
        ++worker.report.left_out;
        lost.emplace_back(name, i);
      }
    }
  }
  for (const auto& [name, tier] : lost) {
    tell(name, tier, Fate::kLeftOut, "newer steps went first, and it has been deleted since");
  }
}

}  // namespace deepfreeze

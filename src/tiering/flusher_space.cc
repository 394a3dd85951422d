// The space that the first tier's attempts take while farther tiers are behind.
#include <algorithm>

#include "tiering/flusher.h"

namespace deepfreeze {

Flusher::Space Flusher::space(const RunListing& near) const {
  const auto held = held_by_each(std::make_shared<RunListing>(near));
  std::vector<AttemptName> all;
  Space space;
  for (std::size_t i = 0; i < held.size(); ++i) {
    all.insert(all.end(), held[i].begin(), held[i].end());
    const bool holds = near_use(near, settings_.near_keep, held[i]).held_bytes > 0;
    if (holds) space.tiers.push_back(i);
  }
  space.use = near_use(near, settings_.near_keep, all);
  const std::lock_guard lock(mutex_);
  for (const std::size_t i : space.tiers) {
    const Worker& worker = *workers_[i];
    space.is_moving = space.is_moving || !is_failing(worker);
    if (!space.why.empty()) space.why += "; ";
    space.why += worker.report.place;
    if (worker.report.error) space.why += " (" + worker.report.error->message() + ")";
  }
  return space;
}

bool Flusher::is_behind() const {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(workers_, [](const auto& worker) {
    return !worker->report.is_over && (worker->has_work || !worker->report.unreadable.empty());
  });
}

void Flusher::await_news(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  if (!is_stopping()) changed_.wait_for(lock, timeout);
}

void Flusher::note_refused(std::span<const std::size_t> tiers) {
  const std::lock_guard lock(mutex_);
  for (const std::size_t tier : tiers) ++workers_[tier]->report.saves_refused;
}

}  // namespace deepfreeze

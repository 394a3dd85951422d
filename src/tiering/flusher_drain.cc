// Waiting until nothing is due, and the reports of all tiers.
#include <algorithm>

#include "base/try.h"
#include "tiering/flusher.h"

namespace deepfreeze {
namespace {

// Longer waits would overflow the clock that they are added to.
constexpr std::chrono::milliseconds kDrainMax = std::chrono::hours(24 * 365);

}  // namespace

bool Flusher::is_drained() const {
  return std::ranges::all_of(
      workers_, [](const auto& worker) { return !worker->has_work || worker->report.is_over; });
}

Status Flusher::drained() const {
  for (const auto& worker : workers_) {
    const TierReport& report = worker->report;
    if (report.is_over) return std::unexpected(*report.error);
    if (report.unreadable.empty()) continue;
    return fail(ErrorCode::kCorrupt, report.place + " lacks step " +
                                         std::to_string(report.unreadable.front().step) +
                                         (report.unreadable.size() > 1 ? " and others" : "") +
                                         ": no nearer copy verifies");
  }
  return {};
}

std::string Flusher::behind() const {
  std::string text;
  for (const auto& worker : workers_) {
    if (!worker->has_work) continue;
    if (!text.empty()) text += "; ";
    text += worker->tier.place + " is behind";
    if (worker->report.error) text += ": " + worker->report.error->message();
  }
  return text;
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
    if (is_stopping()) return true;
    for (std::size_t i = 0; i < workers_.size(); ++i) {
      if (workers_[i]->has_work && !has_failed(i)) return false;
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

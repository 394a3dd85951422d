#include "api/tiers.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/try.h"
#include "tiering/merged_run.h"

namespace deepfreeze {

Result<TieredListing> read_tiers(Vfs& near, std::span<Vfs* const> far) {
  TieredListing found;
  DF_TRY(RunListing own, read_run(near));
  found.tiers.push_back(std::move(own));
  const RunRecord run = found.tiers.front().run;
  for (Vfs* tier : far) {
    auto listing = read_run(*tier);
    if (!listing && listing.error().code() == ErrorCode::kNotFound) {
      listing = RunListing{.run = run, .attempts = {}, .half_deleted = {}, .claims = {}};
    }
    if (!listing) {
      return std::unexpected(
          listing.error().within("a newer checkpoint may lie on a tier that can't be read; open "
                                 "the run without this tier to go on from the others"));
    }
    if (listing->run.run_id != run.run_id) {
      return fail(ErrorCode::kMismatch,
                  fmt::format("tier {} holds another run now, {} in place of "
                              "{}",
                              tier->path_of(""), listing->run.run_id, run.run_id));
    }
    found.tiers.push_back(*std::move(listing));
  }
  found.merged = merge(found.tiers);
  return found;
}

void TierWatch::expect(const AttemptName& name, const std::shared_ptr<SaveHandle::State>& handle) {
  if (tiers_.empty()) return;
  std::vector<TierProgress> progress;
  Awaited awaited{.name = name, .handle = handle, .tiers = {}};
  for (std::size_t i = 0; i < tiers_.size(); ++i) {
    const bool is_meant = !tiers_[i].every || name.step % *tiers_[i].every == 0;
    const auto state = is_meant ? TierProgress::State::kWaiting : TierProgress::State::kNotMeant;
    progress.push_back({.path = tiers_[i].path, .state = state});
    if (is_meant) awaited.tiers.push_back(i);
  }
  handle->meant_for(std::move(progress));
  if (awaited.tiers.empty()) return;
  const std::lock_guard lock(mutex_);
  std::erase_if(awaited_, [](const Awaited& one) { return one.handle.expired(); });
  awaited_.push_back(std::move(awaited));
}

void TierWatch::forget(const AttemptName& name) {
  const std::lock_guard lock(mutex_);
  std::erase_if(awaited_, [&](const Awaited& one) { return one.name == name; });
}

std::vector<AttemptName> TierWatch::awaited(std::size_t tier) {
  std::vector<AttemptName> names;
  std::vector<std::shared_ptr<SaveHandle::State>> held;  // whose end must not come under the lock
  const std::lock_guard lock(mutex_);
  for (const Awaited& one : awaited_) {
    if (std::ranges::find(one.tiers, tier) == one.tiers.end()) continue;
    held.push_back(one.handle.lock());
    if (held.back() && held.back()->is_local()) names.push_back(one.name);
  }
  return names;
}

void TierWatch::tell(const AttemptName& name, std::size_t tier, Flusher::Fate fate,
                     std::string_view why) {
  std::shared_ptr<SaveHandle::State> handle;
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find(awaited_, name, &Awaited::name);
    if (found == awaited_.end() || std::erase(found->tiers, tier) == 0) return;
    handle = found->handle.lock();
    if (found->tiers.empty()) awaited_.erase(found);
  }
  if (!handle) return;
  const bool is_there = fate == Flusher::Fate::kCommitted;
  handle->on_tier(tier, is_there ? TierProgress::State::kCommitted : TierProgress::State::kLeftOut,
                  why);
}

void TierWatch::end(std::string_view why) {
  std::vector<Awaited> left;
  {
    const std::lock_guard lock(mutex_);
    std::swap(left, awaited_);
  }
  for (const Awaited& one : left) {
    const auto handle = one.handle.lock();
    if (!handle) continue;
    for (const std::size_t tier : one.tiers) {
      handle->on_tier(tier, TierProgress::State::kLeftOut, why);
    }
  }
}

}  // namespace deepfreeze

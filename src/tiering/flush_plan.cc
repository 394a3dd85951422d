#include "tiering/flush_plan.h"

#include <algorithm>

#include "manifest/history.h"
#include "manifest/retention.h"

namespace deepfreeze {
namespace {

// Committed, or decided in another way, or being deleted: nothing is to be done about it.
bool is_settled_on(const TierSeen& tier, const AttemptName& name) {
  if (is_among(tier.listing->half_deleted, name)) return true;
  const auto found = std::ranges::find(tier.listing->attempts, name, &AttemptState::name);
  return found != tier.listing->attempts.end() && found->manifest.has_value();
}

// The tier as it would be with all that nearer tiers have for it.
RunListing with_all_meant(std::span<const TierSeen> nearer, const TierSeen& tier) {
  RunListing all{.run = tier.listing->run,
                 .run_rebuilt = false,
                 .attempts = {},
                 .half_deleted = {},
                 .claims = nearer.front().listing->claims};
  for (const AttemptState& attempt : tier.listing->attempts) {
    if (attempt.committed()) all.attempts.push_back(attempt);
  }
  for (const TierSeen& from : nearer) {
    for (const AttemptState& attempt : from.listing->attempts) {
      if (!attempt.committed() || !is_meant_for(tier, attempt.name.step)) continue;
      if (is_settled_on(tier, attempt.name)) continue;
      const auto known = std::ranges::find(all.attempts, attempt.name, &AttemptState::name);
      if (known != all.attempts.end()) continue;
      all.attempts.push_back(attempt);
      // A flush brings neither tags nor parity: they keep the nearer copy alone.
      AttemptState& meant = all.attempts.back();
      meant.given.reset();
      meant.has_parity = false;
    }
  }
  return all;
}

}  // namespace

bool has_rule(const Keep& keep) { return keep.last || keep.every || keep.best; }

AttemptName name_of(const Manifest& manifest) {
  return {manifest.point.step, manifest.point.attempt_id};
}

bool is_among(std::span<const AttemptName> names, const AttemptName& name) {
  return std::ranges::find(names, name) != names.end();
}

bool is_meant_for(const TierSeen& tier, std::uint64_t step) {
  return !tier.every || step % *tier.every == 0;
}

bool is_committed_in(const RunListing& listing, const AttemptName& name) {
  const auto found = std::ranges::find(listing.attempts, name, &AttemptState::name);
  return found != listing.attempts.end() && found->committed();
}

std::vector<Manifest> waiting_for(std::span<const TierSeen> tiers, std::size_t number) {
  const TierSeen& tier = tiers[number];
  const RunListing all = with_all_meant(tiers.first(number), tier);
  const std::vector<AttemptName> unwanted = expired(all, tier.keep);
  std::vector<Manifest> waiting = newest_first(all);
  std::erase_if(waiting, [&](const Manifest& manifest) {
    return is_committed_in(*tier.listing, name_of(manifest)) ||
           is_among(unwanted, name_of(manifest));
  });
  return waiting;
}

std::vector<AttemptName> held_on(std::span<const TierSeen> tiers, std::size_t number) {
  std::vector<AttemptName> held;
  for (std::size_t far = number + 1; far < tiers.size(); ++far) {
    const auto between = tiers.subspan(number + 1, far - number - 1);
    for (const Manifest& manifest : waiting_for(tiers, far)) {
      const AttemptName name = name_of(manifest);
      const bool is_nearer_there = std::ranges::any_of(
          between, [&](const TierSeen& tier) { return is_committed_in(*tier.listing, name); });
      if (!is_nearer_there && !is_among(held, name)) held.push_back(name);
    }
  }
  return held;
}

NearUse near_use(const RunListing& near, const Keep& keep, std::span<const AttemptName> held) {
  const std::vector<AttemptName> released = expired(near, keep);
  NearUse use;
  for (const Manifest& manifest : newest_first(near)) {
    const std::uint64_t bytes = stored_bytes(manifest);
    if (use.bytes == 0) use.newest_bytes = bytes;
    use.bytes += bytes;
    const AttemptName name = name_of(manifest);
    if (is_among(released, name) && is_among(held, name)) use.held_bytes += bytes;
  }
  return use;
}

}  // namespace deepfreeze

// The monthly bill of a tier in an object store, from its rules and the store's prices. Pure; an
// estimate: restores, traffic and taxes are not in it.
#pragma once

#include <cstdint>

namespace deepfreeze {

struct TierUse {
  std::uint64_t every = 1;  // steps from one checkpoint on the tier to the next
  std::uint64_t keep_last = 0;
  std::uint64_t keep_every = 0;  // steps. Both 0: all checkpoints stay
  double steps_per_hour = 0;
  std::uint64_t checkpoint_bytes = 0;
  std::uint64_t files = 1;  // of a checkpoint, of equal size; at least 1
};

// In any currency.
struct TierPrices {
  double gb_month = 0;  // a GB of 10^9 bytes, for a month
  double thousand_puts = 0;
  double thousand_gets = 0;
  bool operator==(const TierPrices&) const = default;
};

struct TierMonth {
  double checkpoints = 0;  // that are copied in the month
  double kept = 0;         // at its end, at most
  double bytes = 0;        // at its end
  double puts = 0;         // requests with the price of a PUT: PUT, POST, LIST
  double gets = 0;         // GET and HEAD; a DELETE costs nothing
  double storage_cost = 0;
  double request_cost = 0;
  [[nodiscard]] double cost() const { return storage_cost + request_cost; }
};

inline constexpr double kHoursPerMonth = 730;

// `month` counts from 1; the tier is empty at the beginning of the first.
[[nodiscard]] TierMonth month_of_tier(const TierUse& use, const TierPrices& prices,
                                      std::uint64_t month);

}  // namespace deepfreeze

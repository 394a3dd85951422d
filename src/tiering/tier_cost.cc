#include "tiering/tier_cost.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/checked_math.h"
#include "object/object_tier.h"
#include "object/object_upload.h"

namespace deepfreeze {
namespace {

// Requests of one flush with the deletion that follows it, as counted in front of a store.
// tests/objects/test_plan.py counts them again.
constexpr double kListsOfRun = 6;          // all keys
constexpr double kListsOfDirectories = 5;  // one level
constexpr double kListsOfAttempts = 5;     // the files of one checkpoint
constexpr double kRecordPuts = 2;          // the manifest, and the mark of a deleted one
constexpr double kRecordGets = 21;         // with HEAD; one more looks for each file
constexpr double kKeysPerPage = 1000;

double pages(double keys) { return std::max(1.0, std::ceil(keys / kKeysPerPage)); }

// One PUT, or the parts of an upload with its beginning and its end.
std::uint64_t puts_of_file(std::uint64_t bytes) {
  if (bytes <= kPartBytes) return 1;
  return ceil_div(bytes, part_bytes_for(bytes, kPartBytes)) + 2;
}

struct Kept {
  double copied_per_month = 0;
  double at_most = 0;          // of those that go again
  double stays_per_month = 0;  // for good
  // At a time, in months.
  [[nodiscard]] double at(double time) const {
    return std::min(copied_per_month * time, at_most) + stays_per_month * time;
  }
  // at(), integrated from the beginning on.
  [[nodiscard]] double until(double time) const {
    const double filling = std::min(time, copied_per_month > 0 ? at_most / copied_per_month : time);
    return copied_per_month * filling * filling / 2 + at_most * (time - filling) +
           stays_per_month * time * time / 2;
  }
};

Kept kept_by(const TierUse& use) {
  const double steps = use.steps_per_hour * kHoursPerMonth;
  Kept kept{.copied_per_month = steps / static_cast<double>(use.every)};
  if (use.keep_last == 0 && use.keep_every == 0) {
    kept.stays_per_month = kept.copied_per_month;
    return kept;
  }
  kept.at_most =
      static_cast<double>(std::max<std::uint64_t>(use.keep_last, 1));  // the newest stays
  if (use.keep_every > 0) {
    const std::uint64_t common = std::gcd(use.every, use.keep_every);
    kept.stays_per_month = kept.copied_per_month / static_cast<double>(use.keep_every / common);
  }
  return kept;
}

}  // namespace

TierMonth month_of_tier(const TierUse& use, const TierPrices& prices, std::uint64_t month) {
  const Kept kept = kept_by(use);
  const auto end = static_cast<double>(month);
  const auto bytes = static_cast<double>(use.checkpoint_bytes);
  const auto files = static_cast<double>(use.files);
  TierMonth found{.checkpoints = kept.copied_per_month, .kept = kept.at(end)};
  found.bytes = found.kept * bytes;
  const double puts =
      files * static_cast<double>(puts_of_file(ceil_div(use.checkpoint_bytes, use.files)));
  const double lists = kListsOfRun * pages(found.kept * (files + 1)) +
                       kListsOfDirectories * pages(found.kept) + kListsOfAttempts * pages(files);
  found.puts = found.checkpoints * (puts + kRecordPuts + lists);
  found.gets = found.checkpoints * (kRecordGets + files);
  found.storage_cost = (kept.until(end) - kept.until(end - 1)) * bytes / 1e9 * prices.gb_month;
  found.request_cost =
      found.puts / 1000 * prices.thousand_puts + found.gets / 1000 * prices.thousand_gets;
  return found;
}

}  // namespace deepfreeze

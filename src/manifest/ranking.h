// Finds the checkpoint that is best by one of its metrics, for retention and for callers that ask
// for it. Pure.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "deepfreeze/options.h"
#include "deepfreeze/result.h"
#include "manifest/run_directory.h"

namespace deepfreeze {

// The facts that decide whether a checkpoint is the best.
struct Measured {
  const std::map<std::string, double>* metrics = nullptr;  // borrowed, never null
  bool on_line = false;                                    // the current line passed through it
  bool non_finite = false;                                 // it is known to hold NaN or infinities
};

// Borrows the metrics of `manifests`, which keep their order.
[[nodiscard]] std::vector<Measured> measured(const std::vector<Manifest>& manifests,
                                             const RunListing& listing);

// The places of the checkpoints that can be the best, best first: on the current line, not known to
// hold NaN or infinities, with a metric that is not NaN. If two are equal, the newer is better.
[[nodiscard]] std::vector<std::size_t> ranked(std::span<const Measured> newest_first,
                                              const Keep::Best& rule);

// The place of the best. `rule` is the run's own, if it has one. kInvalidArgument if the metric or
// its direction is not known, kNotFound if no checkpoint can be the best; both name the metrics
// that exist.
[[nodiscard]] Result<std::size_t> place_of_best(std::span<const Measured> newest_first,
                                                const BestBy& by,
                                                const std::optional<Keep::Best>& rule);

// "best", "best:METRIC" or "best:METRIC:min|max"; the metric's name may hold colons.
[[nodiscard]] Result<BestBy> parse_best(std::string_view text);

}  // namespace deepfreeze

#include "manifest/ranking.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "base/printable.h"
#include "base/try.h"
#include "manifest/history.h"

namespace deepfreeze {
namespace {

constexpr std::size_t kMetricsNamedMax = 20;

std::set<std::string_view> names_of_metrics(std::span<const Measured> checkpoints) {
  std::set<std::string_view> names;
  for (const Measured& one : checkpoints) {
    for (const auto& [name, value] : *one.metrics) names.insert(name);
  }
  return names;
}

std::string named(const std::set<std::string_view>& names) {
  if (names.empty()) return "no checkpoint has any metric";
  std::vector<std::string> shown;
  for (const std::string_view name : names) {
    if (shown.size() == kMetricsNamedMax) break;
    shown.push_back(printable(name));
  }
  const char* more = names.size() > shown.size() ? ", …" : "";
  return fmt::format("there are {}{}", fmt::join(shown, ", "), more);
}

// Less of a loss is better, whatever else is in its name; of other names nobody can know.
std::optional<Keep::Better> better_by_name(std::string_view metric) {
  if (metric.ends_with("loss")) return Keep::Better::kMin;
  return std::nullopt;
}

// Which metric decides, and which of its values is better.
Result<Keep::Best> rule_for(const BestBy& by, const std::optional<Keep::Best>& rule,
                            const std::set<std::string_view>& names) {
  if (!by.metric && !rule) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("the run has no rule that says by which metric (keep's best): write "
                            "best:METRIC:min or best:METRIC:max; {}",
                            named(names)));
  }
  Keep::Best chosen{.metric = by.metric ? *by.metric : rule->metric};
  if (!names.contains(chosen.metric)) {
    return fail(ErrorCode::kNotFound, fmt::format("no checkpoint has the metric {}; {}",
                                                  printable(chosen.metric), named(names)));
  }
  const bool is_of_rule = rule && rule->metric == chosen.metric;
  std::optional<Keep::Better> better = by.better;
  if (!better && is_of_rule) better = rule->better;
  if (!better) better = better_by_name(chosen.metric);
  if (!better) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("is less or more of {0} better? Write best:{0}:min or best:{0}:max",
                            printable(chosen.metric)));
  }
  chosen.better = *better;
  return chosen;
}

}  // namespace

std::vector<Measured> measured(const std::vector<Manifest>& manifests, const RunListing& listing) {
  const CurrentLine line(listing);
  std::vector<Measured> all;
  all.reserve(manifests.size());
  for (const Manifest& manifest : manifests) {
    all.push_back({.metrics = &manifest.annotations.metrics,
                   .on_line = line.contains(manifest.point),
                   .non_finite = manifest.non_finite.value_or(0) > 0});
  }
  return all;
}

std::vector<std::size_t> ranked(std::span<const Measured> newest_first, const Keep::Best& rule) {
  std::vector<std::pair<double, std::size_t>> values;
  for (std::size_t i = 0; i < newest_first.size(); ++i) {
    const Measured& one = newest_first[i];
    const auto found = one.metrics->find(rule.metric);
    if (!one.on_line || one.non_finite) continue;
    if (found == one.metrics->end() || std::isnan(found->second)) continue;
    const double value = rule.better == Keep::Better::kMin ? found->second : -found->second;
    values.emplace_back(value, i);
  }
  std::ranges::sort(values);
  std::vector<std::size_t> places;
  places.reserve(values.size());
  for (const auto& [value, place] : values) places.push_back(place);
  return places;
}

Result<std::size_t> place_of_best(std::span<const Measured> newest_first, const BestBy& by,
                                  const std::optional<Keep::Best>& rule) {
  DF_TRY(const Keep::Best chosen, rule_for(by, rule, names_of_metrics(newest_first)));
  const std::vector<std::size_t> places = ranked(newest_first, chosen);
  if (!places.empty()) return places.front();
  return fail(ErrorCode::kNotFound,
              fmt::format("no checkpoint can be the best by {}: each that has it is abandoned, "
                          "holds NaN or infinities, or has NaN for it",
                          printable(chosen.metric)));
}

Result<BestBy> parse_best(std::string_view text) {
  constexpr std::string_view kBest = "best";
  constexpr std::string_view kMin = ":min";
  constexpr std::string_view kMax = ":max";
  BestBy by;
  if (text == kBest) return by;
  std::string_view metric = text.starts_with("best:") ? text.substr(kBest.size() + 1) : "";
  if (metric.ends_with(kMin)) by.better = Keep::Better::kMin;
  if (metric.ends_with(kMax)) by.better = Keep::Better::kMax;
  if (by.better) metric.remove_suffix(kMin.size());
  if (metric.empty()) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("'{}' is not 'best', 'best:METRIC' or 'best:METRIC:min|max'", printable(text)));
  }
  by.metric = std::string(metric);
  return by;
}

}  // namespace deepfreeze

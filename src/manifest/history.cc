#include "manifest/history.h"

#include <algorithm>
#include <tuple>

namespace deepfreeze {
namespace {

auto key(const Point& point) {
  return std::tie(point.generation, point.step, point.save_index, point.attempt_id);
}

const Claim* find_claim(const RunListing& listing, std::uint64_t generation) {
  const auto found = std::ranges::find(listing.claims, generation, &Claim::generation);
  return found == listing.claims.end() ? nullptr : &*found;
}

}  // namespace

bool older(const Point& a, const Point& b) { return key(a) < key(b); }

std::vector<Manifest> newest_first(const RunListing& listing) {
  std::vector<Manifest> committed;
  for (const AttemptState& attempt : listing.attempts) {
    if (attempt.committed()) committed.push_back(*attempt.manifest);
  }
  std::ranges::sort(committed,
                    [](const Manifest& a, const Manifest& b) { return older(b.point, a.point); });
  return committed;
}

std::uint64_t highest_generation(const RunListing& listing) {
  std::uint64_t highest = 0;
  for (const Claim& claim : listing.claims) highest = std::max(highest, claim.generation);
  for (const AttemptState& attempt : listing.attempts) {
    if (attempt.committed()) highest = std::max(highest, attempt.manifest->point.generation);
  }
  return highest;
}

std::optional<Keep> recorded_keep(const RunListing& listing) {
  const Claim* newest = find_claim(listing, highest_generation(listing));
  if (newest == nullptr || !newest->record) return std::nullopt;
  return newest->record->keep;
}

CurrentLine::CurrentLine(const RunListing& listing) {
  std::uint64_t generation = highest_generation(listing);
  segments_[generation] = std::nullopt;
  for (;;) {  // ends: the generation falls with every turn
    const Claim* claim = find_claim(listing, generation);
    if (claim == nullptr || !claim->record) {
      everything_below_ = generation;
      return;
    }
    const std::optional<Point>& from = claim->record->resumed_from;
    if (!from || from->generation >= generation) {
      begins_at_ = generation;
      return;
    }
    generation = from->generation;
    segments_[generation] = from;
  }
}

bool CurrentLine::contains(const Point& point) const {
  if (point.generation < everything_below_) return true;
  const auto segment = segments_.find(point.generation);
  if (segment == segments_.end()) return false;
  const std::optional<Point>& last = segment->second;
  if (!last) return true;
  return std::tie(point.step, point.save_index) <= std::tie(last->step, last->save_index);
}

bool CurrentLine::knows(const Point& point) const { return point.generation >= everything_below_; }

bool CurrentLine::is_earlier(const Point& point) const { return point.generation < begins_at_; }

bool on_current_line(const RunListing& listing, const Point& point) {
  return CurrentLine(listing).contains(point);
}

}  // namespace deepfreeze

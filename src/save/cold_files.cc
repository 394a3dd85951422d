#include "save/cold_files.h"

#include <utility>

namespace deepfreeze {

void ColdFiles::begin(std::shared_ptr<const TablePlan> table, Origin origin,
                      std::vector<EncodedHeader> headers) {
  forget();
  table_ = std::move(table);
  origin_ = std::move(origin);
  headers_ = std::move(headers);
}

void ColdFiles::forget() {
  table_.reset();
  headers_.clear();
  copies_ = {};
  turn_ = 0;
}

bool ColdFiles::is_due(const Copy& copy) const {
  return copy.sources.empty() || copy.saves >= limits_.saves_max ||
         Monotonic::now() - copy.written >= limits_.age_max;
}

ColdFiles::Turn ColdFiles::next_turn() const {
  return {.copy = turn_, .must_write = is_due(copies_[turn_])};
}

ColdFiles::Turn ColdFiles::other_turn(const Turn& turn) const {
  const std::size_t copy = (turn.copy + 1) % kColdCopies;
  return {.copy = copy, .must_write = is_due(copies_[copy])};
}

void ColdFiles::note(const Turn& turn, const AttemptName& attempt, bool wrote) {
  Copy& copy = copies_[turn.copy];
  if (wrote) copy = {.sources = {}, .saves = 0, .written = Monotonic::now()};
  for (Copy& each : copies_) ++each.saves;
  copy.sources.push_front(attempt);
  if (copy.sources.size() > kColdSourcesMax) copy.sources.pop_back();
  turn_ = (turn.copy + 1) % kColdCopies;
}

}  // namespace deepfreeze

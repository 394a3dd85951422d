#include "api/parity_conductor.h"

#include <algorithm>
#include <utility>

namespace deepfreeze {

std::vector<std::uint32_t> ParityConductor::not_written() const {
  std::vector<std::uint32_t> left;
  for (const std::uint32_t leader : leaders_) {
    if (!written_.contains(leader)) left.push_back(leader);
  }
  return left;
}

std::vector<std::uint32_t> ParityConductor::awaited() const {
  std::vector<std::uint32_t> left = current_ ? not_written() : std::vector<std::uint32_t>();
  std::erase_if(left, [this](std::uint32_t leader) { return failed_.contains(leader); });
  return left;
}

ParityConductor::Orders ParityConductor::committed(const AttemptName& name) {
  newest_ = name;
  return next();
}

ParityConductor::Orders ParityConductor::told(std::uint32_t leader, const AttemptName& name,
                                              ParityStage stage, std::uint64_t turn) {
  if (std::ranges::find(leaders_, leader) == leaders_.end()) return {};
  if (name == last_) {
    return {{.stage = ParityStage::kAll, .name = name, .turn = turn_, .to = {leader}}};
  }
  if (name != current_) return {};
  if (stage == ParityStage::kWritten) {
    written_.insert(leader);
    failed_.erase(leader);
  } else if (turn == turn_ && !written_.contains(leader)) {
    failed_.insert(leader);
  }
  return next();
}

ParityConductor::Order ParityConductor::begin(std::vector<std::uint32_t> to) {
  return {.stage = ParityStage::kBegin,
          .name = *current_,
          .turn = ++turn_,
          .last = last_,
          .to = std::move(to)};
}

// One that a node fails to write gives way to a newer one.
ParityConductor::Orders ParityConductor::next() {
  Orders orders;
  if (current_ && not_written().empty()) {
    last_ = std::exchange(current_, std::nullopt);
    orders.push_back({.stage = ParityStage::kAll, .name = *last_, .turn = ++turn_, .to = leaders_});
  }
  if (newest_ && (!current_ || !failed_.empty())) {
    current_ = std::exchange(newest_, std::nullopt);
    written_.clear();
    failed_.clear();
    orders.push_back(begin(leaders_));
  }
  return orders;
}

ParityConductor::Orders ParityConductor::again() {
  if (!current_) return {};
  failed_.clear();
  return {begin(not_written())};
}

}  // namespace deepfreeze

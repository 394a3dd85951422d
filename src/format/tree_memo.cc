#include "format/tree_memo.h"

#include <utility>

namespace deepfreeze {

void TreeMemo::begin(std::string_view tree) {
  checked_ = tree;
  containers_.clear();
  next_ = 0;
}

void TreeMemo::end() {
  std::swap(known_, containers_);
  if (known_.size() > kContainersMax) known_.clear();
  text_ = known_.empty() ? std::string_view() : checked_;
}

std::size_t TreeMemo::skip(std::size_t at, std::size_t depth) {
  if (next_ >= known_.size()) return 0;
  const Container& old = known_[next_];
  const std::size_t bytes = old.end - old.begin;
  const std::string_view old_text = std::string_view(text_).substr(old.begin, bytes);
  if (old.depth != depth || checked_.substr(at, bytes) != old_text) return 0;
  const auto place = static_cast<std::uint32_t>(at);
  const auto index = static_cast<std::uint32_t>(containers_.size());
  const std::size_t end = containers_.size() <= kContainersMax ? old.after : next_;
  for (std::size_t i = next_; i < end; ++i) {
    const Container& each = known_[i];
    containers_.push_back({.begin = each.begin - old.begin + place,
                           .end = each.end - old.begin + place,
                           .depth = each.depth,
                           .after = each.after - static_cast<std::uint32_t>(next_) + index});
  }
  next_ = old.after;
  return bytes;
}

TreeMemo::Entered TreeMemo::enter(std::size_t at, std::size_t depth) {
  const Entered entered{.own = containers_.size(),
                        .resume = next_ < known_.size() ? known_[next_].after : next_};
  if (entered.own <= kContainersMax) {
    containers_.push_back(
        {.begin = static_cast<std::uint32_t>(at), .depth = static_cast<std::uint32_t>(depth)});
  }
  ++next_;
  return entered;
}

void TreeMemo::leave(const Entered& entered, std::size_t end) {
  next_ = entered.resume;
  if (entered.own > kContainersMax) return;
  containers_[entered.own].end = static_cast<std::uint32_t>(end);
  containers_[entered.own].after = static_cast<std::uint32_t>(containers_.size());
}

}  // namespace deepfreeze

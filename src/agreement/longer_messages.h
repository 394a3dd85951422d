// For tests: ranks that are out of step, so that their messages are too long.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/message.h"
#include "deepfreeze/ranks.h"

namespace deepfreeze::node_test {

// Longer one byte too many stands: behind the message that a rank gives, behind the text within
// that message, or behind rank 0's answer.
enum class Longer { kGiven, kText, kAnswer };

// The bytes of a message that begins with a status and ends with a text.
inline std::string with_longer_text(std::string_view bytes) {
  MessageReader message(bytes);
  const Status status = message.status();
  MessageWriter longer;
  longer.status(status);
  if (status) longer.text(message.text() + 'x');
  return longer.take();
}

// Makes the messages of one call longer.
class LongerMessages final : public RankGroup {
 public:
  LongerMessages(RankGroup& group, std::string call, Longer where)
      : group_(group), call_(std::move(call)), where_(where) {}

  [[nodiscard]] std::uint32_t rank() const override { return group_.rank(); }
  [[nodiscard]] std::uint32_t world_size() const override { return group_.world_size(); }
  [[nodiscard]] Result<std::vector<std::string>> gather(std::string bytes) override {
    MessageReader message(bytes);
    const std::string call = message.text();
    std::string own = message.text();
    is_meant_ = call == call_;
    if (is_meant_ && where_ == Longer::kGiven) own += 'x';
    if (is_meant_ && where_ == Longer::kText) own = with_longer_text(own);
    return group_.gather(MessageWriter().text(call).text(own).take());
  }
  [[nodiscard]] Result<std::string> scatter(std::vector<std::string> bytes) override {
    if (is_meant_ && where_ == Longer::kAnswer) {
      std::ranges::transform(bytes, bytes.begin(), with_longer_text);
    }
    return group_.scatter(std::move(bytes));
  }

 private:
  RankGroup& group_;
  const std::string call_;
  const Longer where_;
  bool is_meant_ = false;
};

}  // namespace deepfreeze::node_test

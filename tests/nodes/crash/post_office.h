// Letters of one job: some are lost, doubled or late.
#pragma once

#include <deque>
#include <map>
#include <vector>

#include "nodes/crash/machines.h"
#include "nodes/mail.h"

namespace deepfreeze::nodes_test {

class PostOffice {
 public:
  PostOffice(Fate& fate, bool is_reliable) : fate_(fate), is_reliable_(is_reliable) {}

  class Box final : public Mail {
   public:
    Box(PostOffice& office, std::uint32_t rank, Process& process)
        : office_(office), rank_(rank), process_(process) {}
    Status send(std::uint32_t rank, const LinkMessage& message) override {
      if (!office_.fate_.lives_through(process_)) return fail(ErrorCode::kNotFound, "dead");
      if (std::holds_alternative<LinkSealed>(message)) has_reported = true;
      office_.post({.to = rank, .letter = {.rank = rank_, .message = message}});
      return {};
    }
    Result<Letter> take(std::chrono::milliseconds /*timeout*/) override {
      if (inbox.empty()) return fail(ErrorCode::kTimeout, "no letter");
      Letter letter = std::move(inbox.front());
      inbox.pop_front();
      return letter;
    }
    [[nodiscard]] Process& process() { return process_; }

    std::deque<Letter> inbox;
    bool has_reported = false;  // since its owner last set it

   private:
    PostOffice& office_;
    const std::uint32_t rank_;
    Process& process_;
  };

  void open(std::uint32_t rank, Box& box) { boxes_[rank] = &box; }
  // In place of a process that is gone: all links with it come up anew.
  void inherit(std::uint32_t rank, Box& box) {
    boxes_[rank] = &box;
    for (const auto& [other, its] : boxes_) {
      if (other != rank) its->inbox.push_back({.rank = rank});
    }
  }
  [[nodiscard]] bool is_empty() const { return under_way_.empty(); }
  // Any of those under way arrives; the receiver may die of it.
  void deliver() {
    const auto at =
        under_way_.begin() + static_cast<std::ptrdiff_t>(fate_.below(under_way_.size()));
    const Posted posted = *at;
    if (is_reliable_ || fate_.below(8) != 0) under_way_.erase(at);  // else it comes once more
    Box& box = *boxes_.at(posted.to);
    if (box.process().is_acting || fate_.lives_through(box.process())) {
      box.inbox.push_back(posted.letter);
    }
  }

 private:
  struct Posted {
    std::uint32_t to = 0;
    Letter letter;
  };
  void post(Posted posted) {
    if (is_reliable_ || fate_.below(12) != 0) return under_way_.push_back(std::move(posted));
    if (fate_.below(2) == 0) return;  // lost, and nobody hears of it
    boxes_.at(posted.to)->inbox.push_back({.rank = posted.letter.rank});
    boxes_.at(posted.letter.rank)->inbox.push_back({.rank = posted.to});
  }

  Fate& fate_;
  const bool is_reliable_;
  std::vector<Posted> under_way_;
  std::map<std::uint32_t, Box*> boxes_;
};

}  // namespace deepfreeze::nodes_test

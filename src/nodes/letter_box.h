// Mail over an endpoint that others use, too: the dispatcher brings the letters, which wait here
// until the leader takes them.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>

#include "link/endpoint.h"
#include "nodes/ledger.h"
#include "nodes/link_dispatcher.h"
#include "nodes/mail.h"

namespace deepfreeze {

// Borrows the endpoint. Any thread.
class LetterBox final : public Mail, public LinkTaker {
 public:
  // Letters beyond `bytes_max` are dropped, as if they had been lost.
  explicit LetterBox(Endpoint& endpoint, std::size_t bytes_max = kReportBytesMax)
      : endpoint_(endpoint), bytes_max_(bytes_max) {}

  [[nodiscard]] Status send(std::uint32_t rank, const LinkMessage& message) override;
  [[nodiscard]] Result<Letter> take(std::chrono::milliseconds timeout) override;

  // The dispatcher's.
  void take(std::uint32_t rank, LinkMessage message) override;
  void note(const LinkState& state) override;
  void end() override;

 private:
  void add(Letter letter);

  Endpoint& endpoint_;
  const std::size_t bytes_max_;
  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::deque<Letter> letters_;
  std::size_t bytes_ = 0;  // of all letters
  bool is_ended_ = false;
};

}  // namespace deepfreeze

// Letters about attempts between the leaders of a job's nodes. A letter may be lost, and may come
// twice, late, and in any order. Any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "link/link_message.h"

namespace deepfreeze {

struct Letter {
  std::uint32_t rank = 0;  // of the leader that sent it
  // None: letters between this leader and that one may have been lost until now.
  std::optional<LinkMessage> message = {};
};

class Mail {
 public:
  virtual ~Mail() = default;
  // An error: the letter will not come. No error promises nothing.
  [[nodiscard]] virtual Status send(std::uint32_t rank, const LinkMessage& message) = 0;
  // kTimeout: none has come in so long. Any other error: none will come any more.
  [[nodiscard]] virtual Result<Letter> take(std::chrono::milliseconds timeout) = 0;
};

}  // namespace deepfreeze

#include "nodes/link_mail.h"

#include <algorithm>

#include "base/clock.h"
#include "base/try.h"

namespace deepfreeze {
namespace {

bool is_letter(const LinkMessage& message) {
  return !std::holds_alternative<LinkRead>(message) &&
         !std::holds_alternative<LinkBytes>(message) && !std::holds_alternative<LinkError>(message);
}

}  // namespace

Status LinkMail::send(std::uint32_t rank, const LinkMessage& message) {
  return endpoint_.send(rank, message);
}

Result<Letter> LinkMail::take(std::chrono::milliseconds timeout) {
  using std::chrono::milliseconds;
  const auto deadline = Monotonic::now() + timeout;
  while (true) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - Monotonic::now());
    DF_TRY(LinkEvent event, endpoint_.receive(std::max(left, milliseconds(0))));
    // News of a link, even of a lost one: what was sent before may not have arrived.
    if (!event.message) return Letter{.rank = event.rank};
    if (is_letter(*event.message)) {
      return Letter{.rank = event.rank, .message = std::move(event.message)};
    }
  }
}

}  // namespace deepfreeze

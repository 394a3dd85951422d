#include "nodes/link_dispatcher.h"

#include <algorithm>
#include <exception>
#include <utility>
#include <variant>

#include "base/log.h"
#include "base/named_threads.h"
#include "base/try.h"

namespace deepfreeze {
namespace {

constexpr std::chrono::milliseconds kReceiveMax{60'000};  // then it waits again

// As if the message were lost, if memory is refused: the others get theirs.
template <class Call>
void guarded(Call call) {
  try {
    call();
  } catch (const std::exception& cause) {
    log_exception("a message of another node is dropped", cause);
  }
}

}  // namespace

LinkDispatcher::LinkDispatcher(Endpoint& endpoint, const Takers& takers)
    : endpoint_(endpoint), takers_(takers) {}

Result<std::unique_ptr<LinkDispatcher>> LinkDispatcher::start(Endpoint& endpoint,
                                                              const Takers& takers) {
  auto dispatcher = std::make_unique<LinkDispatcher>(endpoint, takers);
  dispatcher->threads_ = start_threads(1, "df-mail", [self = dispatcher.get()] { self->run(); });
  if (dispatcher->threads_.empty()) {
    return fail(ErrorCode::kNoSpace, "the system refuses a thread");
  }
  return dispatcher;
}

void LinkDispatcher::run() {
  bool is_open = true;
  while (is_open) {
    guarded([&] {
      auto event = endpoint_.receive(kReceiveMax);
      if (event) return hand_out(*std::move(event));
      is_open = event.error().code() == ErrorCode::kTimeout;
    });
  }
  for (LinkTaker* const taker : all()) {
    if (taker != nullptr) taker->end();
  }
}

LinkTaker* LinkDispatcher::taker_of(const LinkMessage& message) const {
  if (std::holds_alternative<LinkRead>(message)) return takers_.reads;
  if (std::holds_alternative<LinkProtected>(message)) return takers_.parity;
  const bool is_answer =
      std::holds_alternative<LinkBytes>(message) || std::holds_alternative<LinkError>(message);
  return is_answer ? takers_.answers : takers_.commits;
}

void LinkDispatcher::hand_out(LinkEvent event) {
  if (!event.message) return tell_link(event.rank);
  LinkTaker* const taker = taker_of(*event.message);
  if (taker != nullptr) {
    return guarded([&] { taker->take(event.rank, *std::move(event.message)); });
  }
  const auto* read = std::get_if<LinkRead>(&*event.message);
  if (read == nullptr) return;
  // So that the peer need not wait for its deadline. It fails only if there is no link any more.
  std::ignore = endpoint_.send(
      event.rank, LinkError{.number = read->number,
                            .error = Error(ErrorCode::kUnsupported, "gives no files to others")});
}

// The state may be newer than the event; then another event follows.
void LinkDispatcher::tell_link(std::uint32_t rank) {
  const std::vector<LinkState> states = endpoint_.states();
  const auto state = std::ranges::find(states, rank, &LinkState::rank);
  if (state == states.end()) return;
  for (LinkTaker* const taker : all()) {
    if (taker != nullptr) guarded([&] { taker->note(*state); });
  }
}

void LinkDispatcher::close(std::chrono::milliseconds patience) {
  endpoint_.close(patience);
  threads_.clear();  // joins
}

}  // namespace deepfreeze

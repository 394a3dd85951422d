#include "nodes/remote_asks.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

#include "base/try.h"

namespace deepfreeze {
namespace {

std::unexpected<Error> closed() { return fail(ErrorCode::kCancelled, "the links are closed"); }

std::unexpected<Error> no_link(const LinkState& link) {
  return fail(ErrorCode::kTimeout,
              fmt::format("no link with rank {} {} {:.0f} s{}", link.rank,
                          link.count > 0 ? "since" : "after", seconds_since(link.since),
                          link.error ? ": " + link.error->message() : ""));
}

std::unexpected<Error> no_answer(std::uint32_t rank, std::chrono::milliseconds time) {
  return fail(ErrorCode::kTimeout,
              fmt::format("rank {} has not answered for {} ms", rank, time.count()));
}

// The codes that say something of the file, or that the peer can't say it now. Any other of a
// peer's would seem to be this process's.
Error as_read_error(const Error& error) {
  switch (error.code()) {
    case ErrorCode::kNotFound:
    case ErrorCode::kGone:
    case ErrorCode::kCorrupt:
      return error;
    case ErrorCode::kBusy:
    case ErrorCode::kNoSpace:
    case ErrorCode::kTimeout:
      return {ErrorCode::kTimeout, error.message(), error.os_errno()};
    default:
      return {ErrorCode::kIo, error.message(), error.os_errno()};
  }
}

// Before the bytes are kept: a peer may send more than it was asked for.
Result<LinkBytes> checked(LinkBytes bytes, const LinkRead& read) {
  if (bytes.bytes.size() == read.size) return bytes;
  return fail(ErrorCode::kCorrupt,
              fmt::format("{} bytes came, {} were asked for", bytes.bytes.size(), read.size));
}

}  // namespace

RemoteAsk::RemoteAsk(RemoteAsks& asks, std::uint32_t rank, LinkRead read)
    : asks_(asks), rank_(rank), read_(std::move(read)) {
  asks_.send(*this);
}

RemoteAsk::~RemoteAsk() { asks_.forget(*this); }

Result<LinkBytes> RemoteAsk::finish() {
  const bool is_sent = link_ != 0;  // only this thread sends, which sets it
  for (int asks = is_sent ? 1 : 0;; ++asks) {
    if (auto answer = asks_.await_answer(*this)) return *std::move(answer);
    if (asks == kAsksMax) break;
    DF_TRY_VOID(asks_.await_link(*this));
    asks_.send(*this);
  }
  return fail(ErrorCode::kTimeout,
              fmt::format("the link with rank {} was lost {} times", rank_, kAsksMax));
}

RemoteAsks::RemoteAsks(Endpoint& endpoint, AskTimes times) : endpoint_(endpoint), times_(times) {
  for (LinkState& link : endpoint.states()) peers_[link.rank].link = std::move(link);
}

Status RemoteAsks::want_link(std::uint32_t rank) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = peers_.find(rank);
    if (found == peers_.end()) {
      return fail(ErrorCode::kInvalidArgument, fmt::format("there is no peer of rank {}", rank));
    }
    Monotonic::time_point& wanted_at = found->second.wanted_at;
    if (wanted_at == Monotonic::time_point{}) wanted_at = Monotonic::now();
  }
  // A peer without an address dials itself; after close() reads say so.
  std::ignore = endpoint_.dial(rank);
  return {};
}

void RemoteAsks::send(RemoteAsk& ask) {
  if (!begin(ask)) return;
  // Without the lock. An answer may come before this returns.
  const Status sent = endpoint_.send(ask.rank_, ask.read_);
  if (!sent) take_back(ask, sent.error());
}

bool RemoteAsks::begin(RemoteAsk& ask) {
  const std::lock_guard lock(mutex_);
  const auto now = Monotonic::now();
  const auto peer = peers_.find(ask.rank_);
  if (is_closed_) {
    settle(ask, closed());
  } else if (peer == peers_.end()) {
    settle(ask, fail(ErrorCode::kIo, fmt::format("there is no peer of rank {}", ask.rank_)));
  } else if (now < peer->second.silent_until) {
    settle(ask, no_answer(ask.rank_, times_.answer));
  }
  if (ask.state_ == RemoteAsk::State::kDone) return false;
  const LinkState& link = peer->second.link;
  if (!link.is_up) return false;
  ask.read_.number = ++last_number_;
  ask.link_ = link.count;
  ask.deadline_ = now + times_.answer;
  ask.state_ = RemoteAsk::State::kWaits;
  asked_.emplace(ask.read_.number, &ask);
  return true;
}

// It was not sent.
void RemoteAsks::take_back(RemoteAsk& ask, const Error& error) {
  const std::lock_guard lock(mutex_);
  if (ask.state_ != RemoteAsk::State::kWaits) return;
  if (error.code() == ErrorCode::kNotFound) return lose(ask);
  if (error.code() == ErrorCode::kCancelled) return settle(ask, closed());
  settle(ask, std::unexpected(as_read_error(error)));
}

void RemoteAsks::forget(RemoteAsk& ask) {
  const std::lock_guard lock(mutex_);
  if (ask.state_ == RemoteAsk::State::kWaits) asked_.erase(ask.read_.number);
}

void RemoteAsks::settle(RemoteAsk& ask, Result<LinkBytes> answer) {
  if (ask.state_ == RemoteAsk::State::kWaits) asked_.erase(ask.read_.number);
  ask.state_ = RemoteAsk::State::kDone;
  ask.answer_ = std::move(answer);
  ask.changed_.notify_one();
}

void RemoteAsks::lose(RemoteAsk& ask) {
  asked_.erase(ask.read_.number);
  ask.state_ = RemoteAsk::State::kUnsent;
  ask.changed_.notify_one();
}

std::optional<Result<LinkBytes>> RemoteAsks::await_answer(RemoteAsk& ask) {
  std::unique_lock lock(mutex_);
  const auto waits = [&ask] { return ask.state_ == RemoteAsk::State::kWaits; };
  ask.changed_.wait_until(lock, ask.deadline_, [&] { return !waits(); });
  if (waits()) {
    peers_.at(ask.rank_).silent_until = Monotonic::now() + times_.pause;
    settle(ask, no_answer(ask.rank_, times_.answer));
  }
  return std::exchange(ask.answer_, std::nullopt);
}

// For another connection than the one that had the ask.
Status RemoteAsks::await_link(const RemoteAsk& ask) {
  std::unique_lock lock(mutex_);
  const Peer& peer = peers_.at(ask.rank_);
  const LinkState& link = peer.link;
  const auto begun = Monotonic::now();
  while (!is_closed_ && (!link.is_up || link.count == ask.link_)) {
    // If it seems to be up, the news of its loss is on the way.
    const auto without = link.is_up ? begun : std::max(link.since, peer.wanted_at);
    const auto deadline = std::min(begun, without) + times_.link;
    if (Monotonic::now() >= deadline) return no_link(link);
    links_changed_.wait_until(lock, deadline);
  }
  return {};  // or closed: then the next send() says so
}

void RemoteAsks::take(std::uint32_t rank, LinkMessage message) {
  auto* const bytes = std::get_if<LinkBytes>(&message);
  const auto* const error = std::get_if<LinkError>(&message);
  if (bytes == nullptr && error == nullptr) return;
  const std::lock_guard lock(mutex_);
  peers_.at(rank).silent_until = {};  // even for a late answer
  const auto found = asked_.find(bytes != nullptr ? bytes->number : error->number);
  if (found == asked_.end() || found->second->rank_ != rank) return;
  RemoteAsk& ask = *found->second;
  if (error != nullptr) return settle(ask, std::unexpected(as_read_error(error->error)));
  settle(ask, checked(std::move(*bytes), ask.read_));
}

void RemoteAsks::note(const LinkState& state) {
  const std::lock_guard lock(mutex_);
  const auto peer = peers_.find(state.rank);
  if (peer == peers_.end()) return;
  if (state.count != peer->second.link.count) peer->second.silent_until = {};
  peer->second.link = state;
  std::vector<RemoteAsk*> lost;
  for (const auto& [number, ask] : asked_) {
    const bool has_link = state.is_up && state.count == ask->link_;
    if (ask->rank_ == state.rank && !has_link) lost.push_back(ask);
  }
  for (RemoteAsk* ask : lost) lose(*ask);
  links_changed_.notify_all();
}

void RemoteAsks::close() {
  const std::lock_guard lock(mutex_);
  is_closed_ = true;
  while (!asked_.empty()) settle(*asked_.begin()->second, closed());
  links_changed_.notify_all();
}

}  // namespace deepfreeze

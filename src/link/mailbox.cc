#include "link/mailbox.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/try.h"

namespace deepfreeze {
namespace {

// A message takes memory even if it has no bytes.
constexpr std::size_t kLetterBytes = 256;

std::unexpected<Error> closed() { return fail(ErrorCode::kCancelled, "the link is closed"); }

std::unexpected<Error> no_such(std::uint32_t rank) {
  return fail(ErrorCode::kInvalidArgument, fmt::format("there is no peer of rank {}", rank));
}

std::string link_words(const LinkState& state) {
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(Monotonic::now() - state.since).count();
  return fmt::format("no link with rank {} {} {} s{}", state.rank,
                     state.count > 0 ? "since" : "after", seconds,
                     state.error ? ": " + state.error->message() : std::string());
}

}  // namespace

Mailbox::Mailbox(std::span<const std::uint32_t> ranks) {
  const auto now = Monotonic::now();
  for (const std::uint32_t rank : ranks) boxes_[rank].state = {.rank = rank, .since = now};
}

Status Mailbox::post(std::uint32_t rank, std::string frames) {
  const std::lock_guard lock(mutex_);
  DF_TRY_VOID(check_post(rank, frames.size()));
  Box& box = boxes_.at(rank);
  box.outbox_bytes += frames.size();
  box.outbox.push_back(std::move(frames));
  return {};
}

Status Mailbox::may_post(std::uint32_t rank, std::size_t bytes) const {
  const std::lock_guard lock(mutex_);
  return check_post(rank, bytes);
}

Status Mailbox::check_post(std::uint32_t rank, std::size_t bytes) const {
  if (end_) return closed();
  const auto found = boxes_.find(rank);
  if (found == boxes_.end()) return no_such(rank);
  const Box& box = found->second;
  if (!box.state.is_up) return fail(ErrorCode::kNotFound, link_words(box.state));
  if (box.outbox_bytes > 0 && box.outbox_bytes + bytes > kOutboxBytesMax) {
    return fail(ErrorCode::kBusy,
                fmt::format("rank {} has not taken {} bytes yet", rank, box.outbox_bytes));
  }
  return {};
}

LinkUnsent Mailbox::unsent(std::uint32_t rank) const {
  const std::lock_guard lock(mutex_);
  LinkUnsent unsent;
  for (const auto& [other, box] : boxes_) {
    unsent.of_all += box.outbox_bytes;
    if (other == rank) unsent.of_rank = box.outbox_bytes;
  }
  return unsent;
}

Result<Mailbox::Taken> Mailbox::take(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  arrived_.wait_for(lock, timeout, [this] { return end_ || !inbox_.empty(); });
  if (end_) return closed();
  if (inbox_.empty()) return fail(ErrorCode::kTimeout, "no message has come");
  Letter letter = std::move(inbox_.front());
  inbox_.pop_front();
  Box& box = boxes_.at(letter.event.rank);
  if (!letter.event.message) box.has_news = false;
  const bool was_full = box.inbox_bytes >= kInboxBytesMax;
  box.inbox_bytes -= letter.bytes;
  return Taken{.event = std::move(letter.event),
               .makes_room = was_full && box.inbox_bytes < kInboxBytesMax};
}

std::vector<LinkState> Mailbox::states() const {
  const std::lock_guard lock(mutex_);
  std::vector<LinkState> states;
  states.reserve(boxes_.size());
  for (const auto& [rank, box] : boxes_) states.push_back(box.state);
  return states;
}

LinkRefusals Mailbox::refusals() const {
  const std::lock_guard lock(mutex_);
  return refusals_;
}

Status Mailbox::want_dialed(std::uint32_t rank) {
  const std::lock_guard lock(mutex_);
  if (end_) return closed();
  if (!boxes_.contains(rank)) return no_such(rank);
  // The thread takes them at once, so that this stays short.
  if (std::ranges::find(dials_, rank) == dials_.end()) dials_.push_back(rank);
  return {};
}

void Mailbox::close(Monotonic::time_point deadline) {
  const std::lock_guard lock(mutex_);
  if (!end_) end_ = deadline;
  arrived_.notify_all();
}

Mailbox::Orders Mailbox::exchange(std::span<Traffic> links) {
  const std::lock_guard lock(mutex_);
  for (Traffic& link : links) {
    Box& box = boxes_.at(link.rank);
    link.outgoing = std::exchange(box.outbox, {});
    box.outbox_bytes = link.unsent_bytes;
    for (const std::string& frames : link.outgoing) box.outbox_bytes += frames.size();
    link.may_read = box.inbox_bytes < kInboxBytesMax;
  }
  return {.dials = std::exchange(dials_, {}), .end = end_};
}

void Mailbox::deliver(std::uint32_t rank, LinkMessage message, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  Letter letter{.event = {.rank = rank, .message = std::move(message)},
                .bytes = bytes + kLetterBytes};
  boxes_.at(rank).inbox_bytes += letter.bytes;
  inbox_.push_back(std::move(letter));
  arrived_.notify_one();
}

void Mailbox::note_up(std::uint32_t rank) {
  const std::lock_guard lock(mutex_);
  Box& box = boxes_.at(rank);
  box.state.is_up = true;
  box.state.since = Monotonic::now();
  box.state.error.reset();
  ++box.state.count;
  // They were for the connection before; their sender hears that there is a new one.
  box.outbox.clear();
  box.outbox_bytes = 0;
  tell(box);
}

void Mailbox::note_lost(std::uint32_t rank, const Error& error) {
  const std::lock_guard lock(mutex_);
  Box& box = boxes_.at(rank);
  box.state.is_up = false;
  box.state.since = Monotonic::now();
  box.state.error = error;
  box.outbox.clear();
  box.outbox_bytes = 0;
  tell(box);
}

void Mailbox::note_failed(std::uint32_t rank, const Error& error) {
  const std::lock_guard lock(mutex_);
  boxes_.at(rank).state.error = error;
}

bool Mailbox::note_refused(const Error& error) {
  const std::lock_guard lock(mutex_);
  refusals_.last = error;
  return ++refusals_.count == 1;
}

void Mailbox::tell(Box& box) {
  if (std::exchange(box.has_news, true)) return;
  inbox_.push_back({.event = {.rank = box.state.rank}});
  arrived_.notify_one();
}

}  // namespace deepfreeze

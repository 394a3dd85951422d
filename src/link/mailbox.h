// Messages and news between the callers of an endpoint and its thread, behind one lock. Any thread;
// the second half is for the link's thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "link/link_message.h"

namespace deepfreeze {

// Both are for each link. A message alone may be longer than the first bound.
inline constexpr std::size_t kOutboxBytesMax = 2 * kLinkMessageBytesMax;
// The thread reads while fewer bytes wait, so one more message of kLinkMessageBytesMax, or the
// short ones that it reads together, may come on top.
inline constexpr std::size_t kInboxBytesMax = 16 * 1024 * 1024;

// The link with one other process.
struct LinkState {
  std::uint32_t rank = 0;
  bool is_up = false;
  Monotonic::time_point since{};  // it is up, or not
  std::uint64_t count = 0;        // how often it has come up
  // Why it was lost, or why the last try to connect failed. Empty: no try has failed yet.
  std::optional<Error> error = {};
};

// A message, or none: the link with that rank came up or was lost, see its state. Several such
// changes may be told as one.
struct LinkEvent {
  std::uint32_t rank = 0;
  std::optional<LinkMessage> message = {};
};

// Connections of processes that did not prove the key of any rank.
struct LinkRefusals {
  std::uint64_t count = 0;
  std::optional<Error> last = {};
};

// Bytes that post() took and that no connection has given to the kernel yet.
struct LinkUnsent {
  std::size_t of_rank = 0;
  std::size_t of_all = 0;
};

class Mailbox {
 public:
  explicit Mailbox(std::span<const std::uint32_t> ranks);

  // kInvalidArgument: no such rank; kNotFound: no link, and why; kBusy: too much waits already;
  // kCancelled after close().
  [[nodiscard]] Status post(std::uint32_t rank, std::string frames);
  // Whether post() would take a message of so many bytes now.
  [[nodiscard]] Status may_post(std::uint32_t rank, std::size_t bytes) const;
  [[nodiscard]] LinkUnsent unsent(std::uint32_t rank) const;
  struct Taken {
    LinkEvent event;
    bool makes_room = false;  // the thread may read that link again
  };
  // kTimeout; kCancelled after close().
  [[nodiscard]] Result<Taken> take(std::chrono::milliseconds timeout);
  [[nodiscard]] std::vector<LinkState> states() const;
  [[nodiscard]] LinkRefusals refusals() const;
  // kInvalidArgument: no such rank; kCancelled after close().
  [[nodiscard]] Status want_dialed(std::uint32_t rank);
  void close(Monotonic::time_point deadline);

  // From here on for the link's thread.
  struct Traffic {
    std::uint32_t rank;
    std::size_t unsent_bytes;               // of the connection
    std::deque<std::string> outgoing = {};  // answer: for the connection
    bool may_read = true;                   // answer
  };
  struct Orders {
    std::vector<std::uint32_t> dials = {};  // asked for since the last time
    // When the thread must have ended; empty while nobody has closed.
    std::optional<Monotonic::time_point> end = {};
  };
  // Empties the outboxes of links that are up.
  [[nodiscard]] Orders exchange(std::span<Traffic> links);
  void deliver(std::uint32_t rank, LinkMessage message, std::size_t bytes);
  void note_up(std::uint32_t rank);
  void note_lost(std::uint32_t rank, const Error& error);
  void note_failed(std::uint32_t rank, const Error& error);  // a try to connect
  // True for the first one.
  bool note_refused(const Error& error);

 private:
  struct Box {
    LinkState state;
    std::deque<std::string> outbox;
    std::size_t outbox_bytes = 0;  // with those that the connection has not sent
    std::size_t inbox_bytes = 0;
    bool has_news = false;  // a change of the state waits in the inbox
  };
  void tell(Box& box);
  // With the lock held.
  [[nodiscard]] Status check_post(std::uint32_t rank, std::size_t bytes) const;

  mutable std::mutex mutex_;  // guards all below
  std::condition_variable arrived_;
  std::map<std::uint32_t, Box> boxes_;
  struct Letter {
    LinkEvent event;
    std::size_t bytes = 0;
  };
  std::deque<Letter> inbox_;
  LinkRefusals refusals_;
  std::vector<std::uint32_t> dials_;
  std::optional<Monotonic::time_point> end_;
};

}  // namespace deepfreeze

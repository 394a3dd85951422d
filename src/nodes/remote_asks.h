// The ranges of files that this process asks its peers for, and their answers. An ask that is lost
// with its link is made again once the link is up; every wait has a bound.
//
// The owner of the endpoint owns it. Any thread may ask; the dispatcher's brings the answers.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include "base/clock.h"
#include "link/endpoint.h"
#include "nodes/link_dispatcher.h"

namespace deepfreeze {

// How often one range is asked for, if its link is lost again and again.
inline constexpr int kAsksMax = 4;

// Tests shorten them.
struct AskTimes {
  // A link that was lost longer ago, or is wanted for longer, is not waited for.
  std::chrono::milliseconds link{10'000};
  std::chrono::milliseconds answer{30'000};
  // A peer that has let that pass is not asked for so long, unless it answers, or its link comes up
  // anew.
  std::chrono::milliseconds pause{30'000};
};

class RemoteAsks;

// One range that is asked for. One thread; it may wait for several of its own at a time.
class RemoteAsk {
 public:
  // Asks at once if there is a link. The number is set here.
  RemoteAsk(RemoteAsks& asks, std::uint32_t rank, LinkRead read);
  RemoteAsk(const RemoteAsk&) = delete;
  RemoteAsk& operator=(const RemoteAsk&) = delete;
  ~RemoteAsk();

  // Waits. As many bytes as were asked for. kNotFound, kGone, kCorrupt, kIo: the peer's error, or
  // kTimeout: no link, or no answer; kCorrupt: another answer than one to this; kCancelled: closed.
  [[nodiscard]] Result<LinkBytes> finish();

 private:
  friend class RemoteAsks;
  enum class State : std::uint8_t { kUnsent, kWaits, kDone };

  RemoteAsks& asks_;
  const std::uint32_t rank_;
  // From here on guarded by the lock of asks_.
  LinkRead read_;
  State state_ = State::kUnsent;
  std::uint64_t link_ = 0;  // LinkState::count of the connection that had it last; 0: none
  Monotonic::time_point deadline_{};
  std::optional<Result<LinkBytes>> answer_;  // kDone
  std::condition_variable changed_;
};

class RemoteAsks final : public LinkTaker {
 public:
  explicit RemoteAsks(Endpoint& endpoint, AskTimes times = {});
  RemoteAsks(const RemoteAsks&) = delete;
  RemoteAsks& operator=(const RemoteAsks&) = delete;
  ~RemoteAsks() override = default;  // no ask may be left

  // From here on there is a link with that peer, if it can be dialed or dials itself.
  // kInvalidArgument: there is no such peer.
  [[nodiscard]] Status want_link(std::uint32_t rank);
  // Every wait for an answer ends, now and later, with kCancelled.
  void close();

  // The dispatcher's. An answer that nobody waits for is dropped.
  void take(std::uint32_t rank, LinkMessage message) override;
  void note(const LinkState& state) override;
  void end() override { close(); }

 private:
  friend class RemoteAsk;
  struct Peer {
    LinkState link;
    Monotonic::time_point wanted_at{};
    Monotonic::time_point silent_until{};  // not asked before
  };
  void send(RemoteAsk& ask);
  [[nodiscard]] bool begin(RemoteAsk& ask);
  void take_back(RemoteAsk& ask, const Error& error);
  void forget(RemoteAsk& ask);
  // Nothing: the link was lost.
  [[nodiscard]] std::optional<Result<LinkBytes>> await_answer(RemoteAsk& ask);
  [[nodiscard]] Status await_link(const RemoteAsk& ask);
  // With the lock held.
  void settle(RemoteAsk& ask, Result<LinkBytes> answer);
  void lose(RemoteAsk& ask);

  Endpoint& endpoint_;
  const AskTimes times_;
  std::mutex mutex_;  // guards all below
  std::condition_variable links_changed_;
  std::map<std::uint32_t, Peer> peers_;        // never changes its keys
  std::map<std::uint64_t, RemoteAsk*> asked_;  // those that wait, by number
  std::uint64_t last_number_ = 0;
  bool is_closed_ = false;
};

}  // namespace deepfreeze

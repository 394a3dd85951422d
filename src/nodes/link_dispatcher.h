// Takes the messages of one endpoint and gives each to the one that waits for its kind. It alone
// calls Endpoint::receive(), so that users of one endpoint don't take each other's messages.
//
// The owner of the endpoint owns it, and ends it before the takers and the endpoint. In a forked
// child the owner must leave it alone, as it does with its other threads.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "link/endpoint.h"

namespace deepfreeze {

// A user of an endpoint. The calls are the dispatcher's, in its thread, one after the other. They
// must not wait: all other messages of the endpoint wait for them.
class LinkTaker {
 public:
  virtual ~LinkTaker() = default;
  virtual void take(std::uint32_t rank, LinkMessage message) = 0;
  // That link has come up or was lost. A message of an earlier connection may still come, if its
  // end and the next one's begin were told as one.
  virtual void note(const LinkState& state) = 0;
  // Nothing comes any more.
  virtual void end() = 0;
};

class LinkDispatcher {
 public:
  // Messages of a taker that is null are dropped; but a read gets an error as its answer.
  struct Takers {
    LinkTaker* reads = nullptr;    // LinkRead
    LinkTaker* answers = nullptr;  // LinkBytes, LinkError
    LinkTaker* commits = nullptr;  // all other messages: parts and outcomes of attempts
    LinkTaker* parity = nullptr;   // LinkProtected
  };
  // kNoSpace: the system refuses a thread.
  [[nodiscard]] static Result<std::unique_ptr<LinkDispatcher>> start(Endpoint& endpoint,
                                                                     const Takers& takers);
  LinkDispatcher(Endpoint& endpoint, const Takers& takers);
  LinkDispatcher(const LinkDispatcher&) = delete;
  LinkDispatcher& operator=(const LinkDispatcher&) = delete;
  ~LinkDispatcher() { close(); }

  // Closes the endpoint, too, because nobody would take its messages. Returns after all takers'
  // end(), which is called as well if somebody else has closed the endpoint.
  void close(std::chrono::milliseconds patience = kLinkCloseMax);

 private:
  void run();
  void hand_out(LinkEvent event);
  void tell_link(std::uint32_t rank);
  [[nodiscard]] LinkTaker* taker_of(const LinkMessage& message) const;
  [[nodiscard]] std::array<LinkTaker*, 4> all() const {
    return {takers_.reads, takers_.answers, takers_.commits, takers_.parity};
  }

  Endpoint& endpoint_;
  const Takers takers_;
  std::vector<std::jthread> threads_;  // one, until close()
};

}  // namespace deepfreeze

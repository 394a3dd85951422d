// One end of the links between the nodes of a job: it keeps a connection with each of the other
// processes that it dials or that dial it, proves both sides' keys, and carries messages. Losing a
// connection is no failure of the endpoint: it says so, and connects again.
//
// A connection delivers a message at most once, in order. If the link is lost, messages that were
// not sent yet are dropped, and sent ones may have been taken or not. A caller that waits for an
// answer sends again once the link has come up (LinkState::count).
//
// Functions are for any thread; close() is for the owner. Only receive() and close() wait. In a
// forked child every function fails or returns nothing, and the destructor does nothing: the
// sockets go on in the parent.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "link/link_loop.h"
#include "link/tls_identity.h"

namespace deepfreeze {

inline constexpr std::chrono::milliseconds kLinkCloseMax{1'000};

class Endpoint {
 public:
  struct Settings {
    std::string run;  // both sides must name the same
    std::uint32_t rank = 0;
    // From listen_on(), or from a process that is gone; invalid: nobody can connect.
    UniqueFd listener = {};
    std::vector<LinkPeer> peers = {};
    LinkTimes times = {};
  };
  // kUnsupported without OpenSSL; kInvalidArgument for peers of one rank or key, without a
  // key, or dialed without an address.
  [[nodiscard]] static Result<std::unique_ptr<Endpoint>> start(const TlsIdentity& identity,
                                                               Settings settings);
  struct Impl;
  explicit Endpoint(std::unique_ptr<Impl> impl);
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;
  ~Endpoint();

  // For the peer's receive(). kNotFound: there is no link now, and why; kBusy: it has not taken
  // earlier messages; kCancelled: after close(). No hello, no ping, no error of number 0.
  [[nodiscard]] Status send(std::uint32_t rank, const LinkMessage& message);
  // How much of that has not gone out yet: for a sender with bounds of its own.
  [[nodiscard]] LinkUnsent unsent(std::uint32_t rank) const;
  // kTimeout; kCancelled once the endpoint is closed.
  [[nodiscard]] Result<LinkEvent> receive(std::chrono::milliseconds timeout);
  [[nodiscard]] std::vector<LinkState> states() const;  // by rank
  [[nodiscard]] LinkRefusals refusals() const;
  // From here on keeps a link with this peer, too. kInvalidArgument: it has no address;
  // kCancelled: after close().
  [[nodiscard]] Status dial(std::uint32_t rank);
  // A copy of the listening socket for another process: while it is open the port stays, and
  // connections queue if nobody accepts them. kNotFound if there is none.
  [[nodiscard]] Result<UniqueFd> share_listener() const;

  // Gives peers so long to take the messages that were sent, and to close, too; ends at once if
  // there is no link. Receivers return. Later calls, and the destructor's, do nothing.
  void close(std::chrono::milliseconds patience = kLinkCloseMax);

 private:
  [[nodiscard]] Status check_owner() const;

  std::unique_ptr<Impl> impl_;
};

}  // namespace deepfreeze

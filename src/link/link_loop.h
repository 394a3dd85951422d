// The work of the thread `df-link`, which owns all sockets of an endpoint: it accepts, dials,
// carries messages between the mailbox and the connections, and ends them at their deadlines.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ipc/wake_up.h"
#include "link/connection.h"
#include "link/mailbox.h"

namespace deepfreeze {

// Connections that others have made and that carry no link: not yet, or not any more.
inline constexpr std::size_t kNotUpMax = 64;

// Another process of the job.
struct LinkPeer {
  std::uint32_t rank = 0;
  std::string key;  // TlsIdentity::public_key()
  std::vector<LinkAddress> addresses = {};
  // The addresses are tried in turn, again and again, while there is no link. If not dialed, the
  // other process connects, or Endpoint::dial() begins.
  bool is_dialed = false;
};

class LinkLoop {
 public:
  struct Shared {
    const LinkSelf& self;
    const UniqueFd& listener;  // may be invalid: nobody connects
    const WakeUp& wake_up;
    Mailbox& mailbox;
  };
  LinkLoop(Shared shared, const std::vector<LinkPeer>& peers);

  // Returns once the mailbox is closed.
  void run();

 private:
  struct Peer {
    std::vector<LinkAddress> addresses;
    bool is_dialed = false;
    std::vector<std::optional<Error>> errors;  // of the last try, by address
    std::size_t address = 0;                   // the next one to try
    std::size_t tries = 0;                     // since the last pause
    std::chrono::milliseconds pause{0};
    Monotonic::time_point next_try{};
    Monotonic::time_point up_since{};
    Connection* up = nullptr;
    Connection* dialing = nullptr;
  };

  void exchange_mail();
  void begin_to_leave();
  void dial_all();
  [[nodiscard]] Monotonic::time_point next_time() const;
  void wait();
  void accept_all();
  void advance_all();
  void settle(Connection& connection);
  void decide(Connection& connection, Peer& peer);
  void bring_up(Connection& connection, Peer& peer);
  void note_end(const Connection& connection);
  void note_failed_dial(const Connection& connection, Peer& peer);
  void note_lost(const Connection& connection, Peer& peer);
  void remove_ended();
  void make_room();
  [[nodiscard]] bool is_full() const;
  [[nodiscard]] Monotonic::time_point room_at() const;
  [[nodiscard]] bool may_accept() const;
  [[nodiscard]] bool is_due(const Peer& peer) const;

  const Shared shared_;
  std::map<std::uint32_t, Peer> peers_;
  std::vector<std::unique_ptr<Connection>> connections_;
  Monotonic::time_point now_ = Monotonic::now();
  Monotonic::time_point accept_again_{};  // descriptors are scarce until then
  std::vector<short> ready_;              // by connection, of the last wait()
  bool is_acceptable_ = false;
  std::optional<Monotonic::time_point> end_;
};

}  // namespace deepfreeze

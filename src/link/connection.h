// One connection with another process, from its socket to its end: TLS, the two hellos, then
// messages and pings. For the link's thread alone. No call waits.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/unique_fd.h"
#include "link/address.h"
#include "link/frame.h"
#include "link/tls_stream.h"

namespace deepfreeze {

// Tests shorten them.
struct LinkTimes {
  std::chrono::milliseconds connect{2'000};  // for each address
  std::chrono::milliseconds greet{5'000};    // from a connection to both hellos
  std::chrono::milliseconds ping{2'000};
  std::chrono::milliseconds silence{10'000};
  std::chrono::milliseconds retry_min{100};
  std::chrono::milliseconds retry_max{5'000};
  std::chrono::milliseconds leave{1'000};  // for the other side to take the last bytes
};

// The things that all connections of an endpoint have in common; outlives them.
struct LinkSelf {
  TlsContext tls;
  LinkHello hello;
  LinkTimes times;
  std::function<std::optional<std::uint32_t>(std::string_view key)> rank_of;
};

class Connection {
 public:
  enum class Phase : std::uint8_t {
    kConnecting,
    kHandshake,
    kGreeting,
    kGreeted,  // the owner decides: set_up() or leave()
    kUp,
    kLeaving,  // sends its last bytes, and waits until the other side has taken them
    kOver,
  };

  Connection(const LinkSelf& self, UniqueFd socket, std::string place, Monotonic::time_point now);
  // A connection to that rank; over at once if there is no socket.
  [[nodiscard]] static std::unique_ptr<Connection> dial(const LinkSelf& self,
                                                        const LinkAddress& address,
                                                        std::uint32_t rank,
                                                        Monotonic::time_point now);
  [[nodiscard]] static std::unique_ptr<Connection> accepted(const LinkSelf& self, UniqueFd socket,
                                                            Monotonic::time_point now);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  // Ends the connection, also for copies of the socket that a forked child has.
  ~Connection();

  [[nodiscard]] Phase phase() const { return phase_; }
  [[nodiscard]] bool is_dialed() const { return is_dialed_; }
  // Dialed, or proved by its key.
  [[nodiscard]] std::optional<std::uint32_t> rank() const { return rank_; }
  // Why it is leaving or over. It names the other side.
  [[nodiscard]] const std::optional<Error>& error() const { return error_; }

  // From then on it loses its place to a connection that waits: it has not finished its handshake
  // in the time that an honest process needs. Never, if the handshake is over.
  [[nodiscard]] Monotonic::time_point gives_way_at() const;
  void give_way();

  // For poll().
  [[nodiscard]] int fd() const { return socket_.get(); }
  [[nodiscard]] short events() const;
  // When tick() has something to do, at the latest.
  [[nodiscard]] Monotonic::time_point next_tick() const;

  // Reads and writes as far as the socket is ready, up to a bound.
  void advance(short ready, Monotonic::time_point now);
  void tick(Monotonic::time_point now);  // deadlines and pings
  void set_up(Monotonic::time_point now);
  // The other side is told the reason, if there is one. The connection is over at `until` at the
  // latest.
  void leave(const std::optional<Error>& why, Monotonic::time_point now,
             Monotonic::time_point until);
  // True once, after the connection has begun to leave, or is over.
  [[nodiscard]] bool has_just_ended();

  // Whole frames.
  void queue(std::string frames);
  [[nodiscard]] std::size_t unsent_bytes() const { return unsent_bytes_; }
  // While it is false nothing is read, and silence is no fault.
  void set_may_read(bool may_read, Monotonic::time_point now);

  struct Received {
    LinkMessage message;
    std::size_t bytes;
  };
  [[nodiscard]] std::vector<Received> take_received() { return std::exchange(received_, {}); }

 private:
  void begin_tls(Monotonic::time_point now);
  void finish_connect(Monotonic::time_point now);
  void refuse(const Error& why, Monotonic::time_point now);
  void shake_hands(Monotonic::time_point now);
  [[nodiscard]] bool admit(std::string_view key);
  [[nodiscard]] Status flush(Monotonic::time_point now);
  void receive(Monotonic::time_point now);
  [[nodiscard]] Status take(std::string_view bytes);
  [[nodiscard]] Status handle(LinkPayload payload);
  [[nodiscard]] Status greet(const LinkPayload& payload);
  void go_on_leaving(Monotonic::time_point now);
  void end(const Error& error);
  [[nodiscard]] Error named(const Error& error) const;

  const LinkSelf& self_;
  UniqueFd socket_;
  const std::string place_;
  bool is_dialed_ = false;
  std::optional<std::uint32_t> rank_;
  std::optional<std::uint32_t> admitted_;  // of the public key that it has shown
  Phase phase_ = Phase::kHandshake;
  const Monotonic::time_point begun_;
  Monotonic::time_point deadline_;  // of every phase but kUp
  std::optional<Error> error_;

  std::unique_ptr<TlsStream> stream_;  // none before TLS begins, and after it has failed
  TlsStream::Waits handshake_waits_ = TlsStream::Waits::kToRead;
  TlsStream::Waits read_waits_ = TlsStream::Waits::kToRead;
  TlsStream::Waits write_waits_ = TlsStream::Waits::kToWrite;
  FrameReader reader_;
  std::vector<Received> received_;
  std::deque<std::string> outgoing_;
  std::size_t sent_of_front_ = 0;
  std::size_t unsent_bytes_ = 0;
  bool may_read_ = true;
  bool is_end_told_ = false;
  bool has_said_end_ = false;
  bool has_closed_ = false;  // the other side, while this one leaves
  Monotonic::time_point heard_;
  Monotonic::time_point sent_;
};

}  // namespace deepfreeze

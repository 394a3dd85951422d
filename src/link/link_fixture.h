// Nodes of a test on the loopback, and a peer that sends the bytes of a test.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include <filesystem>
#include <optional>
#include <ranges>
#include <string>
#include <thread>
#include <vector>

#include "base/no_broken_pipe.h"
#include "link/endpoint.h"
#include "link/frame.h"
#include "link/tls_stream.h"

namespace deepfreeze::link_test {

inline constexpr std::chrono::seconds kLong{20};  // never waited for in a test that passes
inline constexpr const char* kRun = "0123456789abcdef";

inline LinkAddress loopback() { return LinkAddress::parse("127.0.0.1:0").value(); }

// A process of the job that does not run yet.
struct Node {
  explicit Node(std::uint32_t number) : rank(number) {}
  std::uint32_t rank;
  TlsIdentity identity = TlsIdentity::make().value();
  UniqueFd listener = listen_on(loopback()).value();
  LinkAddress address = LinkAddress::of_socket(listener.get()).value();

  [[nodiscard]] LinkPeer dialed() const {
    return {.rank = rank, .key = identity.public_key(), .addresses = {address}, .is_dialed = true};
  }
  [[nodiscard]] LinkPeer awaited() const { return {.rank = rank, .key = identity.public_key()}; }
  std::unique_ptr<Endpoint> start(std::vector<LinkPeer> peers, LinkTimes times = {}) {
    auto started = Endpoint::start(identity, {.run = kRun,
                                              .rank = rank,
                                              .listener = std::move(listener),
                                              .peers = std::move(peers),
                                              .times = times});
    EXPECT_TRUE(started) << started.error().message();
    return std::move(*started);
  }
};

inline LinkState state_of(const Endpoint& endpoint, std::uint32_t rank) {
  const std::vector<LinkState> states = endpoint.states();
  return *std::ranges::find(states, rank, &LinkState::rank);
}

template <class Condition>
[[nodiscard]] bool await(Condition condition) {
  const auto deadline = Monotonic::now() + kLong;
  while (!condition()) {
    if (Monotonic::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

[[nodiscard]] inline bool await_up(const Endpoint& endpoint, std::uint32_t rank,
                                   std::uint64_t count = 1) {
  return await([&] {
    const LinkState state = state_of(endpoint, rank);
    return state.is_up && state.count >= count;
  });
}

// The error of the link with that rank, once it has one.
[[nodiscard]] inline Error await_error(const Endpoint& endpoint, std::uint32_t rank) {
  const bool came = await([&] { return state_of(endpoint, rank).error.has_value(); });
  return came ? *state_of(endpoint, rank).error : Error(ErrorCode::kInternal, "no error came");
}

// The next message; news of links are passed over.
[[nodiscard]] inline Result<LinkEvent> next_message(Endpoint& endpoint) {
  while (true) {
    auto event = endpoint.receive(kLong);
    if (!event || event->message) return event;
  }
}

inline LinkMessage bytes_message(std::uint64_t number, std::string bytes) {
  return LinkBytes{.number = number, .bytes = std::move(bytes)};
}

// The number of a LinkBytes that comes next; 0 for anything else.
[[nodiscard]] inline std::uint64_t next_number(Endpoint& endpoint) {
  const auto event = next_message(endpoint);
  if (!event) return 0;
  const auto* bytes = std::get_if<LinkBytes>(&*event->message);
  return bytes != nullptr ? bytes->number : 0;
}

inline std::size_t open_files() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::ranges::distance(begin(all), end(all)));
}

inline UniqueFd connected_to(const LinkAddress& address) {
  UniqueFd socket = begin_connect(address).value();
  pollfd file = {.fd = socket.get(), .events = POLLOUT, .revents = 0};
  EXPECT_EQ(::poll(&file, 1, 20'000), 1);
  return socket;
}

inline UniqueFd accepted_from(const UniqueFd& listener) {
  pollfd file = {.fd = listener.get(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&file, 1, 20'000), 1);
  return UniqueFd(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
}

// A process that speaks TLS, and sends the bytes of a test.
class RawPeer {
 public:
  RawPeer(const TlsIdentity& identity, UniqueFd socket, TlsStream::Role role)
      : context_(TlsContext::make(identity).value()), socket_(std::move(socket)) {
    stream_ = TlsStream::make(context_, socket_.get(), role, [](auto) { return true; }).value();
  }

  // False if the other side refuses it, or has closed; see error().
  bool shake_hands() {
    while (true) {
      const auto waits = stream_->handshake();
      if (!waits) return keep(waits.error());
      if (*waits == TlsStream::Waits::kNot) return true;
      wait(*waits);
    }
  }
  bool say(std::string_view bytes) {
    const NoBrokenPipe none;  // the link's thread has its own protection
    while (!bytes.empty()) {
      const auto step = stream_->write(bytes);
      if (!step) return keep(step.error());
      if (step->waits != TlsStream::Waits::kNot) wait(step->waits);
      bytes.remove_prefix(step->bytes);
    }
    return true;
  }
  bool say_message(const LinkMessage& message) { return say(to_frames(encode(message).value())); }
  bool say_hello(std::uint32_t rank) { return say_message(LinkHello{.run = kRun, .rank = rank}); }
  // Nothing once the other side has closed or failed.
  std::optional<LinkMessage> hear() {
    while (true) {
      while (!heard_.empty()) {
        std::string_view left = heard_;
        auto payload = reader_.take(left).value();
        heard_.erase(0, heard_.size() - left.size());
        if (payload) return decode(*payload).value();
      }
      std::string record(TlsStream::kRecordBytes, '\0');
      const auto step = stream_->read(record);
      if (!step) {
        keep(step.error());
        return std::nullopt;
      }
      if (step->is_end) return std::nullopt;
      if (step->waits != TlsStream::Waits::kNot) wait(step->waits);
      heard_.append(record, 0, step->bytes);
    }
  }
  // The reason that the other side gives for ending the link; empty if it gives none.
  std::string hear_refusal() {
    while (const auto message = hear()) {
      const auto* error = std::get_if<LinkError>(&*message);
      if (error != nullptr && error->number == 0) return error->error.message();
    }
    return {};
  }
  [[nodiscard]] const std::string& error() const { return error_; }
  [[nodiscard]] const UniqueFd& socket() const { return socket_; }

 private:
  void wait(TlsStream::Waits waits) const {
    const short events = waits == TlsStream::Waits::kToRead ? POLLIN : POLLOUT;
    pollfd file = {.fd = socket_.get(), .events = events, .revents = 0};
    EXPECT_EQ(::poll(&file, 1, 20'000), 1) << "the other side does nothing";
  }
  bool keep(const Error& error) {
    error_ = error.message();
    return false;
  }

  TlsContext context_;
  UniqueFd socket_;
  std::unique_ptr<TlsStream> stream_;
  FrameReader reader_;
  std::string heard_;
  std::string error_;
};

// A peer that has connected to a node, and said hello.
inline std::unique_ptr<RawPeer> greeted(const Node& self, const LinkAddress& address) {
  auto peer =
      std::make_unique<RawPeer>(self.identity, connected_to(address), TlsStream::Role::kDials);
  EXPECT_TRUE(peer->shake_hands()) << peer->error();
  EXPECT_TRUE(peer->say_hello(self.rank));
  const auto hello = peer->hear();
  EXPECT_TRUE(hello && std::holds_alternative<LinkHello>(*hello)) << peer->error();
  return peer;
}

// No test leaves a descriptor open.
class LinkTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { std::ignore = TlsIdentity::make(); }  // loads the library
  LinkTest() : files_before_(open_files()) {}
  ~LinkTest() override { EXPECT_EQ(open_files(), files_before_); }

 private:
  std::size_t files_before_;
};

}  // namespace deepfreeze::link_test

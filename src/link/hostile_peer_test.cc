// Peers that are silent, slow, gone or out of their mind, known and unknown ones.
#include <sys/wait.h>
#include <unistd.h>

#include "link/link_fixture.h"
#include "support/code_of.h"

namespace deepfreeze::link_test {
namespace {

using HostilePeer = LinkTest;

constexpr std::chrono::milliseconds kSoon{300};

// A listening node with one known peer, and that peer as the test plays it.
struct Scene {
  explicit Scene(LinkTimes times = {}) : endpoint(zero.start({one.awaited()}, times)) {}

  [[nodiscard]] std::unique_ptr<RawPeer> greeted_peer() {
    auto peer = greeted(one, zero.address);
    EXPECT_TRUE(await_up(*endpoint, 1));
    return peer;
  }
  [[nodiscard]] std::string lost_because() const {
    EXPECT_TRUE(await([&] { return !state_of(*endpoint, 1).is_up; }));
    const auto error = state_of(*endpoint, 1).error;
    return error ? error->message() : "";
  }
  [[nodiscard]] std::string refused_because() const {
    EXPECT_TRUE(await([&] { return endpoint->refusals().count > 0; }));
    return endpoint->refusals().last->message();
  }

  Node zero{0};
  Node one{1};
  std::unique_ptr<Endpoint> endpoint;
};

TEST_F(HostilePeer, ThatFallsSilentIsLost) {
  Scene scene({.silence = kSoon});
  const auto peer = scene.greeted_peer();
  const std::string reason = scene.lost_because();
  EXPECT_TRUE(reason.contains("silent for 300 ms")) << reason;
}

TEST_F(HostilePeer, ThatOnlyPingsIsNotLost) {
  constexpr std::chrono::milliseconds kPing{30};
  constexpr std::chrono::milliseconds kSilence{1'000};
  Scene scene({.ping = kPing, .silence = kSilence});
  const auto peer = scene.greeted_peer();
  for (int i = 0; i < 2 * kSilence / kPing; ++i) {
    const auto heard = peer->hear();
    ASSERT_TRUE(heard) << peer->error();
    EXPECT_TRUE(std::holds_alternative<LinkPing>(*heard));
    ASSERT_TRUE(peer->say_message(LinkPing{}));
  }
  EXPECT_TRUE(state_of(*scene.endpoint, 1).is_up);
}

TEST_F(HostilePeer, ThatSpeaksNoTlsIsRefused) {
  Scene scene;
  const UniqueFd socket = connected_to(scene.zero.address);
  const std::string garbage = "GET / HTTP/1.1\r\nHost: any\r\n\r\n" + std::string(4096, '\xff');
  ASSERT_EQ(::send(socket.get(), garbage.data(), garbage.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(garbage.size()));
  const std::string reason = scene.refused_because();
  EXPECT_TRUE(reason.contains("TLS: ")) << reason;
  EXPECT_TRUE(scene.greeted_peer()) << "the others are served";
}

TEST_F(HostilePeer, ThatDoesNotFinishItsHandshakeIsRefused) {
  Scene scene({.greet = kSoon});
  const UniqueFd silent = connected_to(scene.zero.address);
  const std::string reason = scene.refused_because();
  EXPECT_TRUE(reason.contains("no answer in 300 ms")) << reason;
  char byte = 0;
  pollfd file = {.fd = silent.get(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&file, 1, 20'000), 1);
  EXPECT_LE(::recv(silent.get(), &byte, 1, 0), 0);
}

TEST_F(HostilePeer, ThatClosesDuringItsHandshakeIsRefused) {
  Scene scene;
  {
    const UniqueFd gone = connected_to(scene.zero.address);
  }
  const std::string reason = scene.refused_because();
  EXPECT_TRUE(reason.contains("has closed the connection")) << reason;
}

TEST_F(HostilePeer, ThatDoesNotSayHelloIsRefused) {
  Scene scene({.greet = kSoon});
  RawPeer peer(scene.one.identity, connected_to(scene.zero.address), TlsStream::Role::kDials);
  ASSERT_TRUE(peer.shake_hands());
  const Error error = await_error(*scene.endpoint, 1);
  EXPECT_TRUE(error.message().contains("greet: no answer in 300 ms")) << error.message();
  EXPECT_EQ(state_of(*scene.endpoint, 1).count, 0U);
}

TEST_F(HostilePeer, ThatBeginsWithoutHelloIsRefused) {
  Scene scene;
  const std::vector<LinkMessage> first = {LinkPing{}, LinkAsk{}, LinkBytes{}};
  for (const LinkMessage& message : first) {
    RawPeer peer(scene.one.identity, connected_to(scene.zero.address), TlsStream::Role::kDials);
    ASSERT_TRUE(peer.shake_hands());
    ASSERT_TRUE(peer.say_message(message));
    EXPECT_TRUE(peer.hear_refusal().contains("the first message is no hello"));
  }
  RawPeer peer(scene.one.identity, connected_to(scene.zero.address), TlsStream::Role::kDials);
  ASSERT_TRUE(peer.shake_hands());
  ASSERT_TRUE(peer.say_message(LinkHello{.run = std::string(5000, 'r')}));
  EXPECT_TRUE(peer.hear_refusal().contains("more than 4096 bytes"));
  EXPECT_EQ(state_of(*scene.endpoint, 1).count, 0U);
}

// A frame's head; other bytes may follow.
std::string head(std::uint32_t length, std::uint8_t kind) {
  std::string text;
  for (int i = 0; i < 4; ++i) text += static_cast<char>(length >> 8 * i & 0xff);
  return text += static_cast<char>(kind);
}

TEST_F(HostilePeer, ThatSendsGarbageIsToldAndLost) {
  struct Case {
    std::string bytes;
    std::string reason;
  };
  const std::string full(kFrameBytesMax, 'f');
  std::string long_message;
  for (int i = 0; i < 65; ++i) long_message += head(kFrameBytesMax, 10 | 0x80) + full;
  const std::vector<Case> cases = {
      {std::string(64, '\xee'), "a frame of 4008636142 bytes"},
      {head(kFrameBytesMax + 1, 10), "a frame of 1048577 bytes"},
      {head(0, 0), "a frame of unknown kind 0"},
      {head(3, 6) + "abc", "a message of kind 6 and 3 bytes"},
      {to_frames(encode(LinkHello{.run = kRun, .rank = 1}).value()), "a second hello"},
      {long_message, "a message of more than 67108864 bytes"}};
  for (const Case& one : cases) {
    Scene scene;
    const auto peer = scene.greeted_peer();
    std::ignore = peer->say(one.bytes);
    const std::string heard = peer->hear_refusal();
    EXPECT_TRUE(heard.contains(one.reason)) << heard << peer->error();
    const std::string lost = scene.lost_because();
    EXPECT_TRUE(lost.contains(one.reason)) << lost;
    EXPECT_EQ(state_of(*scene.endpoint, 1).error->code(), ErrorCode::kCorrupt);
  }
}

TEST_F(HostilePeer, ThatHasClosedItsHalfHearsAllThatItWasSent) {
  Scene scene({.leave = kLong});
  const auto peer = scene.greeted_peer();
  // More than the sockets hold: the reason comes long after the end of the peer's half.
  ASSERT_TRUE(scene.endpoint->send(1, bytes_message(5, std::string(32 << 20, 'l'))));
  pollfd begun = {.fd = peer->socket().get(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(::poll(&begun, 1, 20'000), 1) << "a link that ends sends nothing that it had not begun";
  ASSERT_TRUE(peer->say(head(0, 0)));
  ASSERT_EQ(::shutdown(peer->socket().get(), SHUT_WR), 0);
  EXPECT_TRUE(await([&] { return !state_of(*scene.endpoint, 1).is_up; }));
  const auto message = peer->hear();
  ASSERT_TRUE(message) << peer->error();
  EXPECT_EQ(std::get<LinkBytes>(*message).bytes.size(), 32U << 20);
  EXPECT_TRUE(peer->hear_refusal().contains("a frame of unknown kind 0"));
}

TEST_F(HostilePeer, ThatSaysWhyItEndsTheLinkIsQuoted) {
  Scene scene;
  const auto peer = scene.greeted_peer();
  ASSERT_TRUE(peer->say_message(bytes_message(4, "")));
  ASSERT_TRUE(peer->say_message(LinkError{.error = Error(ErrorCode::kNoSpace, "no more")}));
  const std::string reason = scene.lost_because();
  EXPECT_TRUE(reason.contains("it has ended the link: no more")) << reason;
  EXPECT_EQ(next_number(*scene.endpoint), 4U) << "messages before it are delivered";
}

TEST_F(HostilePeer, ThatConnectsAgainTakesTheDeadConnectionsPlace) {
  Scene scene;
  const auto first = scene.greeted_peer();
  const auto second = greeted(scene.one, scene.zero.address);
  ASSERT_TRUE(await_up(*scene.endpoint, 1, 2));
  EXPECT_TRUE(first->hear_refusal().contains("another connection takes its place"));
  ASSERT_TRUE(second->say_message(bytes_message(6, "")));
  EXPECT_EQ(next_number(*scene.endpoint), 6U);
}

TEST_F(HostilePeer, ThatDoesNotReadIsBusyAtABound) {
  Scene scene({.silence = std::chrono::hours(1)});
  const auto peer = scene.greeted_peer();
  const std::string much(8 << 20, 'b');
  std::size_t sent = 0;
  Status last;
  while (sent < 64 && last) {
    last = scene.endpoint->send(1, bytes_message(sent + 1, much));
    if (last) ++sent;
  }
  EXPECT_EQ(code_of(last), ErrorCode::kBusy);
  EXPECT_LE(sent * much.size(), kOutboxBytesMax + (32 << 20)) << "the kernel takes some, too";
  for (std::size_t i = 0; i < sent; ++i) {
    const auto heard = peer->hear();
    ASSERT_TRUE(heard);
    EXPECT_EQ(std::get<LinkBytes>(*heard).number, i + 1);
  }
  EXPECT_TRUE(scene.endpoint->send(1, bytes_message(99, "")));
}

TEST_F(HostilePeer, ThatSendsMoreThanIsTakenWaits) {
  const LinkTimes times{.ping = std::chrono::milliseconds(50),
                        .silence = std::chrono::milliseconds(1'000)};
  Node zero(0);
  Node one(1);
  const auto slow = zero.start({one.awaited()}, times);
  const auto fast = one.start({zero.dialed()}, times);
  ASSERT_TRUE(await_up(*fast, 0));
  const std::string much(4 << 20, 'w');
  std::uint64_t sent = 0;
  while (fast->send(0, bytes_message(sent + 1, much)) && sent < 200) ++sent;
  EXPECT_LT(sent, 200U) << "nobody takes them";
  // Both sides wait for longer than silence is allowed, and neither is lost.
  std::this_thread::sleep_for(2 * times.silence);
  EXPECT_TRUE(state_of(*fast, 0).is_up);
  EXPECT_TRUE(state_of(*slow, 1).is_up);
  for (std::uint64_t i = 1; i <= sent; ++i) ASSERT_EQ(next_number(*slow), i);
  EXPECT_EQ(state_of(*slow, 1).count, 1U);
}

TEST_F(HostilePeer, ThatClosesWhileItsMessagesWaitIsLostAfterThem) {
  Node zero(0);
  Node one(1);
  const auto slow = zero.start({one.awaited()});
  auto fast = one.start({zero.dialed()});
  ASSERT_TRUE(await_up(*fast, 0));
  const std::string much(8 << 20, 'w');
  for (std::uint64_t i = 1; i <= 5; ++i) ASSERT_TRUE(fast->send(0, bytes_message(i, much)));
  std::jthread closes([&] { fast->close(kLong); });
  for (std::uint64_t i = 1; i <= 5; ++i) ASSERT_EQ(next_number(*slow), i);
  EXPECT_TRUE(await([&] { return !state_of(*slow, 1).is_up; }));
}

TEST_F(HostilePeer, ThatNeverAnswersADialerTimesOut) {
  Node zero(0);
  Node one(1);
  const auto dialing = one.start({zero.dialed()}, {.greet = kSoon});  // nobody accepts
  const Error error = await_error(*dialing, 0);
  EXPECT_EQ(error.code(), ErrorCode::kTimeout);
  EXPECT_TRUE(error.message().contains("greet: no answer in 300 ms")) << error.message();
}

// A listening socket with a full queue: the kernel answers no connection.
struct DeadEnd {
  DeadEnd() {
    EXPECT_EQ(::listen(socket.get(), 0), 0);
    for (int i = 0; i < 8; ++i) queued.push_back(begin_connect(address).value());
  }
  UniqueFd socket = listen_on(loopback()).value();
  LinkAddress address = LinkAddress::of_socket(socket.get()).value();
  std::vector<UniqueFd> queued;
};

TEST_F(HostilePeer, ThatDoesNotTakeAConnectionTimesOut) {
  const DeadEnd nowhere;
  Node zero(0);
  Node one(1);
  LinkPeer peer = zero.dialed();
  peer.addresses = {nowhere.address};
  const auto dialing = one.start({peer}, {.connect = kSoon});
  const Error error = await_error(*dialing, 0);
  EXPECT_TRUE(error.message().contains("connect: no answer in 300 ms")) << error.message();
}

TEST_F(HostilePeer, CloseWhileConnectingEndsAtOnce) {
  const DeadEnd nowhere;
  Node zero(0);
  Node one(1);
  Node two(2);
  LinkPeer unreachable = zero.dialed();
  unreachable.addresses = {nowhere.address};
  // A peer that does not connect, one that does not shake hands, and one that waits for its next
  // try.
  const LinkTimes times{.connect = std::chrono::hours(1), .greet = std::chrono::hours(1)};
  LinkPeer mute = two.dialed();
  Node three(3);
  LinkPeer refusing = three.dialed();
  three.listener = UniqueFd();
  const auto dialing = one.start({unreachable, mute, refusing}, times);
  EXPECT_EQ(await_error(*dialing, 3).os_errno(), ECONNREFUSED);
  dialing->close(std::chrono::hours(1));  // a test that waits for it fails by its time limit
}

TEST_F(HostilePeer, ThatDoesNotTakeLastWordsDelaysCloseUpToABound) {
  Scene scene;
  const auto peer = scene.greeted_peer();
  ASSERT_TRUE(scene.endpoint->send(1, bytes_message(1, std::string(32 << 20, 'l'))));
  const std::size_t before = open_files();
  scene.endpoint->close(kSoon);
  EXPECT_EQ(open_files(), before - 1) << "its connection is over";
  EXPECT_EQ(code_of(scene.endpoint->send(1, LinkAsk{})), ErrorCode::kCancelled);
}

// A public key is known to many. This identity has that of another process and a private key of its
// own. The bytes of a private key hold both, and nobody compares them.
TlsIdentity with_public_key_of(const TlsIdentity& other) {
  constexpr std::size_t kPointBytes = 65;
  std::string key = TlsIdentity::make()->private_key().value();
  key.replace(key.size() - kPointBytes, kPointBytes,
              other.public_key().substr(kPublicKeyBytes - kPointBytes));
  TlsIdentity identity = TlsIdentity::take_over(key).value();
  EXPECT_EQ(identity.public_key(), other.public_key());
  return identity;
}

TEST_F(HostilePeer, WithAPublicKeyAloneIsRefusedLikeAnyStranger) {
  Scene scene;
  const TlsIdentity thief = with_public_key_of(scene.one.identity);
  const auto try_it = [&] {
    RawPeer peer(thief, connected_to(scene.zero.address), TlsStream::Role::kDials);
    if (peer.shake_hands() && peer.say_hello(1)) std::ignore = peer.hear();
    EXPECT_FALSE(peer.error().empty());
  };
  try_it();
  EXPECT_TRUE(await([&] { return scene.endpoint->refusals().count == 1; }));
  EXPECT_FALSE(state_of(*scene.endpoint, 1).error) << "it is not rank 1";
  const auto peer = scene.greeted_peer();
  try_it();
  EXPECT_TRUE(await([&] { return scene.endpoint->refusals().count == 2; }));
  const LinkState state = state_of(*scene.endpoint, 1);
  EXPECT_TRUE(state.is_up);
  EXPECT_EQ(state.count, 1U);
  EXPECT_FALSE(state.error);
}

TEST_F(HostilePeer, WithAPublicKeyAloneIsNotTheOneThatWasDialed) {
  Node zero(0);
  Node one(1);
  zero.identity = with_public_key_of(zero.identity);
  const auto thief = zero.start({one.awaited()});
  const auto dialing = one.start({zero.dialed()});
  const Error error = await_error(*dialing, 0);
  EXPECT_TRUE(error.message().contains("bad signature")) << error.message();
  EXPECT_EQ(state_of(*dialing, 0).count, 0U);
}

// A side without any certificate, and one that knows TLS 1.2 alone.
std::string refusal_of_odd_client(const LinkAddress& address, bool is_old) {
  constexpr long kVersion12 = 0x0303;
  constexpr int kNoVerify = 0;
  const tls::Library& library = *tls::library().value();
  const tls::OwnedContext context(library.make_context(library.method()), {&library});
  library.set_verify(context.get(), kNoVerify, nullptr);
  if (is_old) library.control_context(context.get(), tls::kSetVersionMax, kVersion12, nullptr);
  const UniqueFd socket = connected_to(address);
  const tls::OwnedSession session(library.make_session(context.get()), {&library});
  library.set_socket(session.get(), socket.get());
  library.connect(session.get());
  char byte = 0;
  while (true) {
    library.clear_errors();
    int done = library.handshake(session.get());
    if (done == 1) done = library.read(session.get(), &byte, 1);
    if (library.session_error(session.get(), done) != tls::kWantsRead) break;
    pollfd file = {.fd = socket.get(), .events = POLLIN, .revents = 0};
    ::poll(&file, 1, 20'000);
  }
  return tls::take_failure(library).text;
}

TEST_F(HostilePeer, WithoutAKeyOrWithAnOldTlsIsRefused) {
  Scene scene;
  const std::string without_key = refusal_of_odd_client(scene.zero.address, false);
  EXPECT_TRUE(without_key.contains("certificate required")) << without_key;
  EXPECT_TRUE(await([&] { return scene.endpoint->refusals().count == 1; }));
  const std::string old = refusal_of_odd_client(scene.zero.address, true);
  EXPECT_TRUE(old.contains("protocol version")) << old;
  EXPECT_TRUE(await([&] { return scene.endpoint->refusals().count == 2; }));
}

}  // namespace
}  // namespace deepfreeze::link_test

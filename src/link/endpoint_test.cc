// Two endpoints, or one and a process that does not keep to the protocol.
#include "link/endpoint.h"

#include <sys/resource.h>

#include <latch>

#include "base/log.h"
#include "link/link_fixture.h"
#include "support/code_of.h"
#include "support/no_more_threads.h"

namespace deepfreeze::link_test {
namespace {

using EndpointTest = LinkTest;

TEST_F(EndpointTest, BothSidesShowTheirKeysAndTalk) {
  Node zero(0);
  Node eight(8);
  const auto listening = zero.start({eight.awaited()});
  const auto dialing = eight.start({zero.dialed()});
  ASSERT_TRUE(await_up(*listening, 8));
  ASSERT_TRUE(await_up(*dialing, 0));
  ASSERT_TRUE(dialing->send(0, LinkAsk{.attempt = {.step = 7, .attempt_id = 9}}));
  const auto asked = next_message(*listening);
  ASSERT_TRUE(asked);
  EXPECT_EQ(asked->rank, 8U);
  EXPECT_EQ(std::get<LinkAsk>(*asked->message).attempt, (LinkAttempt{7, 9}));
  ASSERT_TRUE(listening->send(8, LinkGone{.attempt = {.step = 7, .attempt_id = 9}}));
  const auto answered = next_message(*dialing);
  ASSERT_TRUE(answered);
  EXPECT_EQ(answered->rank, 0U);
  EXPECT_TRUE(std::holds_alternative<LinkGone>(*answered->message));
}

TEST_F(EndpointTest, LongMessagesArriveWholeAndInOrder) {
  Node zero(0);
  Node one(1);
  const auto listening = zero.start({one.awaited()});
  const auto dialing = one.start({zero.dialed()});
  ASSERT_TRUE(await_up(*dialing, 0));
  const std::string most(kLinkMessageBytesMax - 24, 'm');
  ASSERT_TRUE(dialing->send(0, bytes_message(1, most)));
  ASSERT_TRUE(dialing->send(0, bytes_message(2, std::string(3 << 20, 'x'))));
  ASSERT_TRUE(dialing->send(0, bytes_message(3, "")));
  const auto first = next_message(*listening);
  ASSERT_TRUE(first);
  EXPECT_TRUE(std::get<LinkBytes>(*first->message).bytes == most);
  EXPECT_EQ(next_number(*listening), 2U);
  EXPECT_EQ(next_number(*listening), 3U);
}

TEST_F(EndpointTest, AChangeOfALinkIsToldOnce) {
  Node zero(0);
  Node one(1);
  const auto listening = zero.start({one.awaited()});
  auto dialing = one.start({zero.dialed()});
  const auto up = listening->receive(kLong);
  ASSERT_TRUE(up);
  EXPECT_EQ(up->rank, 1U);
  EXPECT_FALSE(up->message);
  EXPECT_TRUE(state_of(*listening, 1).is_up);
  EXPECT_EQ(code_of(listening->receive(std::chrono::milliseconds(0))), ErrorCode::kTimeout);
  dialing.reset();
  const auto lost = listening->receive(kLong);
  ASSERT_TRUE(lost);
  EXPECT_FALSE(lost->message);
  const LinkState state = state_of(*listening, 1);
  EXPECT_FALSE(state.is_up);
  EXPECT_EQ(state.count, 1U);
  EXPECT_TRUE(state.error->message().contains("rank 1 at 127.0.0.1")) << state.error->message();
  EXPECT_TRUE(state.error->message().contains("closed the link")) << state.error->message();
  const Status sent = listening->send(1, LinkAsk{});
  ASSERT_EQ(code_of(sent), ErrorCode::kNotFound);
  EXPECT_TRUE(sent.error().message().contains("since 0 s")) << sent.error().message();
}

TEST_F(EndpointTest, AListenerRefusesAKeyThatIsNobodys) {
  Node zero(0);
  Node one(1);
  Node stranger(1);
  const auto listening = zero.start({one.awaited()});
  const auto dialing = stranger.start({zero.dialed()});
  const Error error = await_error(*dialing, 0);
  EXPECT_EQ(error.code(), ErrorCode::kMismatch);
  EXPECT_TRUE(error.message().contains("rank 0 at 127.0.0.1")) << error.message();
  EXPECT_TRUE(error.message().contains("does not accept this process's key")) << error.message();
  ASSERT_TRUE(await([&] { return listening->refusals().count > 0; }));
  const Error refused = *listening->refusals().last;
  EXPECT_EQ(refused.code(), ErrorCode::kMismatch);
  EXPECT_TRUE(refused.message().contains("its key is not the expected one")) << refused.message();
  EXPECT_FALSE(state_of(*listening, 1).is_up);
  EXPECT_EQ(state_of(*dialing, 0).count, 0U);
}

TEST_F(EndpointTest, ADialerRefusesAKeyThatIsNotTheExpectedRanks) {
  Node zero(0);
  Node one(1);
  Node two(2);
  const auto listening = zero.start({one.awaited()});
  LinkPeer wrong = zero.dialed();
  wrong.key = two.identity.public_key();
  const LinkPeer known{.rank = 2, .key = zero.identity.public_key()};  // but not of rank 0
  const auto dialing = one.start({wrong, known});
  const Error error = await_error(*dialing, 0);
  EXPECT_EQ(error.code(), ErrorCode::kMismatch);
  EXPECT_TRUE(error.message().contains("its key is not the expected one")) << error.message();
  EXPECT_EQ(state_of(*dialing, 0).count, 0U);
  EXPECT_EQ(state_of(*listening, 1).count, 0U);
}

TEST_F(EndpointTest, OtherRunsRanksAndVersionsAreRefusedWithAReason) {
  Node zero(0);
  Node one(1);
  const LinkAddress address = zero.address;
  const auto listening = zero.start({one.awaited()});
  struct Case {
    LinkHello hello;
    std::string reason;
    ErrorCode code;
  };
  const std::vector<Case> cases = {
      {{.run = "fedcba9876543210", .rank = 1}, "meets run fedcba9876543210", ErrorCode::kMismatch},
      {{.run = kRun, .rank = 2}, "rank 2 has the key of rank 1", ErrorCode::kMismatch},
      {{.version = 3, .run = kRun, .rank = 1}, "meets version 3", ErrorCode::kUnsupported}};
  for (const Case& one_case : cases) {
    RawPeer peer(one.identity, connected_to(address), TlsStream::Role::kDials);
    ASSERT_TRUE(peer.shake_hands());
    ASSERT_TRUE(peer.say_message(one_case.hello));
    const std::string heard = peer.hear_refusal();
    EXPECT_TRUE(heard.contains(one_case.reason)) << heard;
    ASSERT_TRUE(await([&] {
      const auto error = state_of(*listening, 1).error;
      return error && error->code() == one_case.code && error->message().contains(one_case.reason);
    }));
  }
  EXPECT_EQ(state_of(*listening, 1).count, 0U);
}

TEST_F(EndpointTest, ARefusedDialerKnowsTheReason) {
  Node zero(0);
  Node one(1);
  auto listening = Endpoint::start(zero.identity, {.run = "another",
                                                   .rank = 0,
                                                   .listener = std::move(zero.listener),
                                                   .peers = {one.awaited()}});
  ASSERT_TRUE(listening);
  const auto dialing = one.start({zero.dialed()});
  // Either side may be the first to see it.
  const Error error = await_error(*dialing, 0);
  EXPECT_EQ(error.code(), ErrorCode::kMismatch);
  EXPECT_TRUE(error.message().contains("another")) << error.message();
}

TEST_F(EndpointTest, ConnectsAgainAfterTheOtherSideHasStartedAgain) {
  Node zero(0);
  Node one(1);
  auto listening = zero.start({one.awaited()});
  const auto dialing = one.start({zero.dialed()});
  ASSERT_TRUE(await_up(*dialing, 0));
  listening.reset();
  ASSERT_TRUE(await([&] { return !state_of(*dialing, 0).is_up; }));
  const Error refused = [&] {
    std::ignore = await(
        [&] { return state_of(*dialing, 0).error->message().contains("Connection refused"); });
    return *state_of(*dialing, 0).error;
  }();
  EXPECT_TRUE(refused.message().contains("Connection refused")) << refused.message();
  zero.listener = listen_on(zero.address).value();
  listening = zero.start({one.awaited()});
  ASSERT_TRUE(await_up(*dialing, 0, 2));
  ASSERT_TRUE(await_up(*listening, 1));
  EXPECT_FALSE(state_of(*dialing, 0).error);
  ASSERT_TRUE(dialing->send(0, bytes_message(5, "")));
  EXPECT_EQ(next_number(*listening), 5U);
}

TEST_F(EndpointTest, TriesAllAddresses) {
  Node zero(0);
  Node one(1);
  LinkPeer peer = zero.dialed();
  const LinkAddress dead = Node(2).address;  // nobody listens there any more
  peer.addresses = {dead, peer.addresses.front()};
  const auto listening = zero.start({one.awaited()});
  const auto dialing = one.start({peer});
  EXPECT_TRUE(await_up(*dialing, 0));
}

TEST_F(EndpointTest, SaysWhyEachAddressFails) {
  Node zero(0);
  Node one(1);
  LinkPeer peer = zero.dialed();
  peer.addresses = {Node(2).address, Node(2).address};
  const std::string first = peer.addresses[0].text();
  const std::string second = peer.addresses[1].text();
  const auto dialing = one.start({peer});
  EXPECT_TRUE(await([&] {
    const auto error = state_of(*dialing, 0).error;
    return error && error->message().contains(first + ": connect") &&
           error->message().contains(second + ": connect");
  }));
}

TEST_F(EndpointTest, DialsOnRequest) {
  Node zero(0);
  Node one(1);
  LinkPeer peer = zero.dialed();
  peer.is_dialed = false;
  const auto listening = zero.start({one.awaited()});
  EXPECT_EQ(code_of(listening->dial(1)), ErrorCode::kInvalidArgument) << "it has no address";
  const auto dialing = one.start({peer});
  EXPECT_EQ(code_of(dialing->dial(7)), ErrorCode::kInvalidArgument);
  EXPECT_EQ(state_of(*dialing, 0).count, 0U);
  ASSERT_TRUE(dialing->dial(0));
  EXPECT_TRUE(await_up(*dialing, 0));
  dialing->close();
  EXPECT_EQ(code_of(dialing->dial(0)), ErrorCode::kCancelled);
}

TEST_F(EndpointTest, TwoSidesThatDialEachOtherHaveOneLink) {
  for (int round = 0; round < 20; ++round) {
    Node zero(0);
    Node one(1);
    const LinkPeer peer_zero = zero.dialed();
    const LinkPeer peer_one = one.dialed();
    const auto left = zero.start({peer_one});
    const auto right = one.start({peer_zero});
    ASSERT_TRUE(await_up(*left, 1));
    ASSERT_TRUE(await_up(*right, 0));
    // Once they have agreed on one connection, messages pass both ways.
    ASSERT_TRUE(await([&] {
      std::ignore = left->send(1, bytes_message(1, ""));
      const auto event = right->receive(std::chrono::milliseconds(50));
      return event && event->message;
    }));
    ASSERT_TRUE(await([&] {
      std::ignore = right->send(0, bytes_message(1, ""));
      const auto event = left->receive(std::chrono::milliseconds(50));
      return event && event->message;
    }));
  }
}

// The link's thread waits in the call that logs a refused connection, until release().
class HeldThread {
 public:
  HeldThread() {
    set_log_sink([this](std::string_view /*line*/) {
      held_.count_down();
      released_.wait();
    });
  }
  HeldThread(const HeldThread&) = delete;
  HeldThread& operator=(const HeldThread&) = delete;
  ~HeldThread() { set_log_sink({}); }

  void hold(const LinkAddress& address) {
    connected_to(address);  // and closed
    held_.wait();
  }
  void release() { released_.count_down(); }

 private:
  std::latch held_{1};
  std::latch released_{1};
};

TEST_F(EndpointTest, PrefersAnyConnectionToOneThatTimesOutInTheSameMoment) {
  constexpr std::chrono::milliseconds kSilence{1'000};
  HeldThread thread;
  Node zero(0);
  Node one(1);  // its own connections win against those of rank 0
  const auto endpoint = one.start({zero.dialed()}, {.silence = kSilence});
  RawPeer silent(zero.identity, accepted_from(zero.listener), TlsStream::Role::kAccepts);
  ASSERT_TRUE(silent.shake_hands());
  ASSERT_TRUE(silent.say_hello(0));
  ASSERT_TRUE(await_up(*endpoint, 0));
  RawPeer second(zero.identity, connected_to(one.address), TlsStream::Role::kDials);
  ASSERT_TRUE(second.shake_hands());
  ASSERT_TRUE(second.hear());  // the hello: that side has only to decide
  thread.hold(one.address);
  EXPECT_TRUE(second.say_hello(0));
  std::this_thread::sleep_for(kSilence);
  thread.release();
  ASSERT_TRUE(await_up(*endpoint, 0, 2));
  ASSERT_TRUE(second.say_message(bytes_message(6, "")));
  EXPECT_EQ(next_number(*endpoint), 6U);
}

TEST_F(EndpointTest, RefusesSettingsThatCannotWork) {
  Node zero(0);
  Node one(1);
  const auto start = [&](std::vector<LinkPeer> peers) {
    return code_of(Endpoint::start(zero.identity, {.run = kRun, .peers = std::move(peers)}));
  };
  EXPECT_EQ(start({one.awaited(), one.awaited()}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(start({zero.awaited()}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(start({{.rank = 1, .key = "short"}}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(start({one.awaited(), {.rank = 2, .key = one.identity.public_key()}}),
            ErrorCode::kInvalidArgument);
  LinkPeer nowhere = one.awaited();
  nowhere.is_dialed = true;
  EXPECT_EQ(start({nowhere}), ErrorCode::kInvalidArgument);
  UniqueFd no_listener(::socket(AF_INET, SOCK_STREAM, 0));
  EXPECT_EQ(
      code_of(Endpoint::start(zero.identity, {.run = kRun, .listener = std::move(no_listener)})),
      ErrorCode::kInvalidArgument);
}

TEST_F(EndpointTest, NeedsAThread) {
  const TlsIdentity identity = TlsIdentity::make().value();
  const NoMoreThreads scope;
  EXPECT_EQ(code_of(Endpoint::start(identity, {.run = kRun})), ErrorCode::kNoSpace);
}

TEST_F(EndpointTest, SharesNoListenerThatItDoesNotHaveOrCannotCopy) {
  const TlsIdentity identity = TlsIdentity::make().value();
  const auto dialing = Endpoint::start(identity, {.run = kRun}).value();
  EXPECT_EQ(code_of(dialing->share_listener()), ErrorCode::kNotFound);
  Node zero(0);
  const auto listening = zero.start({});
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none = {.rlim_cur = 0, .rlim_max = before.rlim_max};
  const int limited = ::setrlimit(RLIMIT_NOFILE, &none);
  const auto shared = listening->share_listener();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_EQ(limited, 0);
  EXPECT_EQ(code_of(shared), ErrorCode::kIo);
}

TEST_F(EndpointTest, SendsNoMessageThatIsItsOwn) {
  Node zero(0);
  Node one(1);
  const auto listening = zero.start({one.awaited()});
  EXPECT_EQ(code_of(listening->send(1, LinkHello{})), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of(listening->send(1, LinkPing{})), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of(listening->send(1, LinkError{})), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of(listening->send(3, LinkAsk{})), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of(listening->send(1, LinkAsk{})), ErrorCode::kNotFound);
  const LinkPart not_writable{.file = ".."};
  EXPECT_EQ(code_of(listening->send(1, not_writable)), ErrorCode::kNotFound) << "asked first";
}

}  // namespace
}  // namespace deepfreeze::link_test

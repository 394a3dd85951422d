// A process that reads files of peers which the test plays: they answer late, wrongly or not at
// all.
#include "nodes/remote_asks.h"

#include <future>

#include "nodes/remote_fixture.h"

namespace deepfreeze::nodes_test {
namespace {

using namespace std::chrono_literals;

// A process that reads, and its peers of rank 1 and 2.
struct PlayedPeers {
  // No link is lost because its peer, which sends no pings, is silent.
  explicit PlayedPeers(AskTimes times = kNever)
      : reading(zero, {one.awaited(), two.awaited()}, times, {.silence = 1h}) {}

  // With a link that both sides know to be up.
  [[nodiscard]] std::unique_ptr<RawPeer> peer(Node& node) {
    const std::uint64_t count = state_of(*reading.endpoint, node.rank).count;
    auto raw = greeted(node, zero.address);
    EXPECT_TRUE(await_up(*reading.endpoint, node.rank, count + 1));
    return raw;
  }
  // Reads a whole file of `bytes` of rank 1, in a thread of its own.
  std::future<Result<std::string>> begin() {
    return std::async(std::launch::async, [this] {
      const auto files = reading.files_of(1);
      return read_whole(*files, sealed_path());
    });
  }

  Node zero{0};
  Node one{1};
  Node two{2};
  Reading reading;
};

LinkBytes opened(const LinkRead& read, std::uint64_t file_bytes) {
  EXPECT_EQ(read.size, 0U);
  return {.number = read.number, .file_bytes = file_bytes};
}
LinkBytes answered(const LinkRead& read, const std::string& whole) {
  return {.number = read.number,
          .file_bytes = whole.size(),
          .bytes = whole.substr(read.offset, read.size)};
}

class RemoteAsksTest : public LinkTest {
 protected:
  // Hears that the file is opened, and says how long it is.
  static void answer_open(RawPeer& peer, std::uint64_t file_bytes) {
    ASSERT_TRUE(peer.say_message(opened(heard_read(peer), file_bytes)));
  }
  // Until then each read fails at once.
  static bool is_asked_again(PlayedPeers& scene, RawPeer& peer) {
    const auto answering = std::async(std::launch::async, [&] { answer_open(peer, 0); });
    const bool is_asked = await([&] { return scene.begin().get().has_value(); });
    if (!is_asked) scene.reading.dispatcher->close(0ms);  // so that the peer does not wait
    return is_asked;
  }
};

TEST_F(RemoteAsksTest, AsksForFourPiecesAtATimeOfOneMiBAtMost) {
  PlayedPeers scene;
  const auto peer = scene.peer(scene.one);
  const std::string whole = some_bytes(9 * kRangeBytesMax + 5);
  auto got = scene.begin();
  answer_open(*peer, whole.size());
  std::deque<LinkRead> asked;
  for (std::size_t i = 0; i < kAsksInFlight; ++i) asked.push_back(heard_read(*peer));
  for (std::uint64_t next = kAsksInFlight; !asked.empty(); ++next) {
    // A sign of this process comes before a fifth one.
    ASSERT_TRUE(scene.reading.endpoint->send(1, LinkAsk{}));
    auto between = peer->hear();
    while (between && std::holds_alternative<LinkPing>(*between)) between = peer->hear();
    EXPECT_TRUE(between && std::holds_alternative<LinkAsk>(*between)) << next;
    EXPECT_LE(asked.front().size, kRangeBytesMax);
    ASSERT_TRUE(peer->say_message(answered(asked.front(), whole)));
    asked.pop_front();
    if (next * kRangeBytesMax < whole.size()) {
      asked.push_back(heard_read(*peer));
      EXPECT_EQ(asked.back().offset, next * kRangeBytesMax);
    }
  }
  EXPECT_TRUE(*got.get() == whole);
}

TEST_F(RemoteAsksTest, AnswersMayComeInAnyOrder) {
  PlayedPeers scene;
  const auto peer = scene.peer(scene.one);
  const std::string whole = some_bytes(3 * kRangeBytesMax + 5);
  auto got = scene.begin();
  answer_open(*peer, whole.size());
  std::vector<LinkRead> asked;
  for (std::size_t i = 0; i < kAsksInFlight; ++i) asked.push_back(heard_read(*peer));
  for (const LinkRead& read : std::views::reverse(asked)) {
    ASSERT_TRUE(peer->say_message(answered(read, whole)));
  }
  EXPECT_TRUE(*got.get() == whole);
}

TEST_F(RemoteAsksTest, AnswersThatNobodyAskedForAreDropped) {
  PlayedPeers scene;
  const auto peer = scene.peer(scene.one);
  auto got = scene.begin();
  for (const std::uint64_t number : {0ULL, 2ULL, ~0ULL}) {
    ASSERT_TRUE(peer->say_message(LinkBytes{.number = number, .file_bytes = 99}));
  }
  ASSERT_TRUE(peer->say_message(LinkError{.number = 77, .error = Error(ErrorCode::kIo, "no")}));
  answer_open(*peer, 4);
  const LinkRead read = heard_read(*peer);
  ASSERT_TRUE(peer->say_message(LinkBytes{.number = 1, .file_bytes = 4}));  // of the opening
  ASSERT_TRUE(peer->say_message(answered(read, "good")));
  EXPECT_EQ(*got.get(), "good");
}

TEST_F(RemoteAsksTest, TheFirstOfTwoAnswersCounts) {
  PlayedPeers scene;
  const auto peer = scene.peer(scene.one);
  auto got = scene.begin();
  answer_open(*peer, 4);
  const LinkRead read = heard_read(*peer);
  ASSERT_TRUE(peer->say_message(answered(read, "good")));
  ASSERT_TRUE(peer->say_message(answered(read, "evil")));
  EXPECT_EQ(*got.get(), "good");
  auto again = scene.begin();
  answer_open(*peer, 4);
  const LinkRead second = heard_read(*peer);
  EXPECT_GT(second.number, read.number) << "no number comes again";
  ASSERT_TRUE(peer->say_message(answered(second, "more")));
  EXPECT_EQ(*again.get(), "more");
}

TEST_F(RemoteAsksTest, AnAnswerOfAnotherPeerIsDropped) {
  PlayedPeers scene;
  const auto peer = scene.peer(scene.one);
  const auto other = scene.peer(scene.two);
  auto got = scene.begin();
  answer_open(*peer, 4);
  const LinkRead read = heard_read(*peer);
  ASSERT_TRUE(other->say_message(answered(read, "evil")));
  // Once the answer to this has come, the one before has been taken.
  auto opened_there = std::async(
      std::launch::async, [&] { return read_whole(*scene.reading.files_of(2), sealed_path()); });
  ASSERT_TRUE(other->say_message(opened(heard_read(*other), 0)));
  EXPECT_EQ(*opened_there.get(), "");
  ASSERT_TRUE(peer->say_message(answered(read, "good")));
  EXPECT_EQ(*got.get(), "good");
}

TEST_F(RemoteAsksTest, AnAnswerOfAnotherSizeIsCorrupt) {
  for (const std::string& wrong : {std::string("bad"), std::string("wrong"), std::string()}) {
    PlayedPeers scene;
    const auto peer = scene.peer(scene.one);
    auto got = scene.begin();
    answer_open(*peer, 4);
    const LinkRead read = heard_read(*peer);
    ASSERT_TRUE(
        peer->say_message(LinkBytes{.number = read.number, .file_bytes = 4, .bytes = wrong}));
    const auto bytes = got.get();
    ASSERT_EQ(code_of(bytes), ErrorCode::kCorrupt) << wrong;
    EXPECT_TRUE(bytes.error().message().contains("4 were asked for")) << bytes.error().message();
    EXPECT_TRUE(bytes.error().message().contains("rank 1 at host7")) << bytes.error().message();
  }
}

TEST_F(RemoteAsksTest, AnOpeningThatBringsBytesIsCorrupt) {
  PlayedPeers scene;
  const auto peer = scene.peer(scene.one);
  auto got = scene.begin();
  const LinkRead read = heard_read(*peer);
  ASSERT_TRUE(peer->say_message(
      LinkBytes{.number = read.number, .file_bytes = 4, .bytes = std::string(4, 'x')}));
  EXPECT_EQ(code_of(got.get()), ErrorCode::kCorrupt);
}

TEST_F(RemoteAsksTest, AFileWhoseSizeChangesIsCorrupt) {
  PlayedPeers scene;
  const auto peer = scene.peer(scene.one);
  auto got = scene.begin();
  answer_open(*peer, 4);
  const LinkRead read = heard_read(*peer);
  ASSERT_TRUE(peer->say_message(
      LinkBytes{.number = read.number, .file_bytes = 5, .bytes = std::string(4, 'x')}));
  const auto bytes = got.get();
  ASSERT_EQ(code_of(bytes), ErrorCode::kCorrupt);
  EXPECT_TRUE(bytes.error().message().contains("has 5 bytes now")) << bytes.error().message();
}

TEST_F(RemoteAsksTest, APeersErrorsAreThoseOfAFile) {
  struct Case {
    ErrorCode said;
    ErrorCode opening;
    ErrorCode reading;
  };
  for (const Case& one_case : {Case{ErrorCode::kNotFound, ErrorCode::kNotFound, ErrorCode::kGone},
                               Case{ErrorCode::kGone, ErrorCode::kGone, ErrorCode::kGone},
                               Case{ErrorCode::kCorrupt, ErrorCode::kCorrupt, ErrorCode::kCorrupt},
                               Case{ErrorCode::kIo, ErrorCode::kIo, ErrorCode::kIo},
                               Case{ErrorCode::kBusy, ErrorCode::kTimeout, ErrorCode::kTimeout},
                               Case{ErrorCode::kNoSpace, ErrorCode::kTimeout, ErrorCode::kTimeout},
                               Case{ErrorCode::kCancelled, ErrorCode::kIo, ErrorCode::kIo},
                               Case{ErrorCode::kInternal, ErrorCode::kIo, ErrorCode::kIo}}) {
    PlayedPeers scene;
    const auto peer = scene.peer(scene.one);
    const Error error(one_case.said, "the cause", 5);
    auto opening = scene.begin();
    ASSERT_TRUE(peer->say_message(LinkError{.number = heard_read(*peer).number, .error = error}));
    auto failed = opening.get();
    ASSERT_EQ(code_of(failed), one_case.opening);
    EXPECT_EQ(failed.error().message(), "open rank 1 at host7: " + sealed_path() + ": the cause");
    auto reading = scene.begin();
    answer_open(*peer, 4);
    ASSERT_TRUE(peer->say_message(LinkError{.number = heard_read(*peer).number, .error = error}));
    failed = reading.get();
    ASSERT_EQ(code_of(failed), one_case.reading);
    EXPECT_EQ(failed.error().message(),
              "read rank 1 at host7: " + sealed_path() + " at 0: the cause");
  }
}

TEST_F(RemoteAsksTest, AsksAgainOverTheNextLinkAndTakesNoOldNumber) {
  PlayedPeers scene;
  auto peer = scene.peer(scene.one);
  auto got = scene.begin();
  answer_open(*peer, 4);
  const LinkRead before = heard_read(*peer);
  peer.reset();
  peer = scene.peer(scene.one);
  const LinkRead after = heard_read(*peer);
  EXPECT_GT(after.number, before.number);
  EXPECT_EQ(after.offset, before.offset);
  EXPECT_EQ(after.size, before.size);
  ASSERT_TRUE(peer->say_message(answered(before, "late")));
  ASSERT_TRUE(peer->say_message(answered(after, "good")));
  EXPECT_EQ(*got.get(), "good");
}

// The peer comes back over another connection, before the loss of the first was noticed.
TEST_F(RemoteAsksTest, AsksAgainIfOneConnectionTakesThePlaceOfAnother) {
  PlayedPeers scene;
  const auto first = scene.peer(scene.one);
  auto got = scene.begin();
  answer_open(*first, 4);
  std::ignore = heard_read(*first);
  const auto second = scene.peer(scene.one);
  ASSERT_TRUE(second->say_message(answered(heard_read(*second), "good")));
  EXPECT_EQ(*got.get(), "good");
}

TEST_F(RemoteAsksTest, AnotherPeersLinkDoesNotMatter) {
  PlayedPeers scene;
  const auto peer = scene.peer(scene.one);
  auto got = scene.begin();
  answer_open(*peer, 4);
  const LinkRead read = heard_read(*peer);
  auto other = scene.peer(scene.two);
  other.reset();
  ASSERT_TRUE(await([&] { return !state_of(*scene.reading.endpoint, 2).is_up; }));
  other = scene.peer(scene.two);
  ASSERT_TRUE(peer->say_message(answered(read, "good")));
  EXPECT_EQ(*got.get(), "good");
}

// The dispatcher tells of a loss a little later than it happens.
TEST_F(RemoteAsksTest, ALossThatIsNotKnownYetIsNoError) {
  Node zero(0);
  Node one(1);
  const auto endpoint = zero.start({one.awaited()});
  auto peer = greeted(one, zero.address);
  ASSERT_TRUE(await_up(*endpoint, 1));
  RemoteAsks asks(*endpoint, kNever);
  peer.reset();
  ASSERT_TRUE(await([&] { return !state_of(*endpoint, 1).is_up; }));
  RemoteAsk ask(asks, 1, {.attempt = kAttempt, .file = sealed_file()});
  auto got = std::async(std::launch::async, [&] { return ask.finish(); });
  const auto dispatcher = LinkDispatcher::start(*endpoint, {.answers = &asks}).value();
  peer = greeted(one, zero.address);
  ASSERT_TRUE(peer->say_message(opened(heard_read(*peer), 9)));
  EXPECT_EQ(got.get()->file_bytes, 9U);
}

TEST_F(RemoteAsksTest, AnswersToAReadThatHasFailedAreDropped) {
  PlayedPeers scene;
  const auto peer = scene.peer(scene.one);
  const std::string whole = some_bytes(kAsksInFlight * kRangeBytesMax);
  auto got = scene.begin();
  answer_open(*peer, whole.size());
  std::vector<LinkRead> asked;
  for (std::size_t i = 0; i < kAsksInFlight; ++i) asked.push_back(heard_read(*peer));
  ASSERT_TRUE(peer->say_message(
      LinkError{.number = asked[0].number, .error = Error(ErrorCode::kIo, "bad sector")}));
  EXPECT_EQ(code_of(got.get()), ErrorCode::kIo);
  for (const LinkRead& read : asked) ASSERT_TRUE(peer->say_message(answered(read, whole)));
  auto again = scene.begin();
  answer_open(*peer, 0);
  EXPECT_EQ(*again.get(), "");
}

TEST_F(RemoteAsksTest, APeerThatIsWantedLateIsWaitedForAllTheSame) {
  constexpr auto kLink = 2s;
  PlayedPeers scene({.link = kLink, .answer = kLong});
  const auto since = state_of(*scene.reading.endpoint, 1).since;
  ASSERT_TRUE(await([&] { return Monotonic::now() > since + kLink; }));
  auto got = scene.begin();
  const auto peer = scene.peer(scene.one);
  answer_open(*peer, 0);
  EXPECT_EQ(*got.get(), "");
}

TEST_F(RemoteAsksTest, WaitsForALinkThatIsNotUpYet) {
  PlayedPeers scene;
  auto got = scene.begin();
  const auto peer = scene.peer(scene.one);
  answer_open(*peer, 0);
  EXPECT_EQ(*got.get(), "");
}

TEST_F(RemoteAsksTest, ALinkThatIsLostAgainAndAgainIsGivenUp) {
  PlayedPeers scene;
  // Not sent yet, so that this is no ask.
  RemoteAsk ask(*scene.reading.asks, 1, {.attempt = kAttempt, .file = sealed_file()});
  auto got = std::async(std::launch::async, [&ask] { return ask.finish(); });
  auto peer = scene.peer(scene.one);
  for (int asks = 1; asks <= kAsksMax; ++asks) {
    std::ignore = heard_read(*peer);
    peer.reset();
    if (asks < kAsksMax) peer = scene.peer(scene.one);
  }
  const auto bytes = got.get();
  ASSERT_EQ(code_of(bytes), ErrorCode::kTimeout);
  EXPECT_TRUE(bytes.error().message().contains("lost 4 times")) << bytes.error().message();
}

// It costs no ask: a link that is known to be lost is not tried.
TEST_F(RemoteAsksTest, ALinkThatWasLostBeforeIsWaitedForWithAllAsks) {
  Node zero(0);
  Node one(1);
  const auto endpoint = zero.start({one.awaited()});
  auto peer = greeted(one, zero.address);
  ASSERT_TRUE(await_up(*endpoint, 1));
  peer.reset();
  ASSERT_TRUE(await([&] { return !state_of(*endpoint, 1).is_up; }));
  RemoteAsks asks(*endpoint, kNever);
  const auto dispatcher = LinkDispatcher::start(*endpoint, {.answers = &asks}).value();
  RemoteAsk ask(asks, 1, {.attempt = kAttempt, .file = sealed_file()});
  auto got = std::async(std::launch::async, [&] { return ask.finish(); });
  for (int lost = 1; lost < kAsksMax; ++lost) {
    peer = greeted(one, zero.address);
    std::ignore = heard_read(*peer);
  }
  peer = greeted(one, zero.address);
  ASSERT_TRUE(peer->say_message(opened(heard_read(*peer), 9)));
  EXPECT_EQ(got.get()->file_bytes, 9U);
}

TEST_F(RemoteAsksTest, APeerThatNeverComesIsGivenUpAndThenNotWaitedFor) {
  PlayedPeers scene({.link = 500ms, .answer = kLong});
  const auto begun = Monotonic::now();
  for (int i = 0; i < 50; ++i) {
    const auto bytes = scene.begin().get();
    ASSERT_EQ(code_of(bytes), ErrorCode::kTimeout);
    EXPECT_TRUE(bytes.error().message().contains("no link with rank 1 after"))
        << bytes.error().message();
  }
  EXPECT_GE(Monotonic::now() - begun, 500ms);
  EXPECT_LT(Monotonic::now() - begun, 15s) << "each one waited";
}

TEST_F(RemoteAsksTest, ALinkThatIsLostForGoodIsGivenUpAndThenNotWaitedFor) {
  PlayedPeers scene({.link = 500ms, .answer = kLong});
  auto peer = scene.peer(scene.one);
  auto got = scene.begin();
  answer_open(*peer, 4);
  std::ignore = heard_read(*peer);
  peer.reset();
  const auto bytes = got.get();
  ASSERT_EQ(code_of(bytes), ErrorCode::kTimeout);
  EXPECT_TRUE(bytes.error().message().contains("no link with rank 1 since"))
      << bytes.error().message();
  EXPECT_TRUE(bytes.error().message().contains("closed")) << bytes.error().message();
  const auto begun = Monotonic::now();
  for (int i = 0; i < 50; ++i) EXPECT_EQ(code_of(scene.begin().get()), ErrorCode::kTimeout);
  EXPECT_LT(Monotonic::now() - begun, 15s) << "each one waited";
}

TEST_F(RemoteAsksTest, ASilentPeerIsGivenUpAndNotAskedForAWhile) {
  PlayedPeers scene({.link = kLong, .answer = 500ms, .pause = 1h});
  const auto peer = scene.peer(scene.one);
  const auto bytes = scene.begin().get();
  ASSERT_EQ(code_of(bytes), ErrorCode::kTimeout);
  EXPECT_TRUE(bytes.error().message().contains("has not answered for 500 ms"))
      << bytes.error().message();
  const auto begun = Monotonic::now();
  for (int i = 0; i < 40; ++i) EXPECT_EQ(code_of(scene.begin().get()), ErrorCode::kTimeout);
  EXPECT_LT(Monotonic::now() - begun, 10s) << "each one waited";
}

TEST_F(RemoteAsksTest, ASilentPeerIsAskedAgainOnceItAnswersOrComesAnew) {
  PlayedPeers scene({.link = kLong, .answer = 1s, .pause = 1h});
  auto peer = scene.peer(scene.one);
  ASSERT_EQ(code_of(scene.begin().get()), ErrorCode::kTimeout);
  const LinkRead late = heard_read(*peer);
  ASSERT_TRUE(peer->say_message(opened(late, 0)));
  // The late answer may not have been taken yet.
  ASSERT_TRUE(is_asked_again(scene, *peer));
  ASSERT_EQ(code_of(scene.begin().get()), ErrorCode::kTimeout) << "silent again";
  peer.reset();
  peer = scene.peer(scene.one);
  ASSERT_TRUE(is_asked_again(scene, *peer));
}

TEST_F(RemoteAsksTest, ASilentPeerIsAskedAgainAfterAPause) {
  PlayedPeers scene({.link = kLong, .answer = 500ms, .pause = 500ms});
  const auto peer = scene.peer(scene.one);
  ASSERT_EQ(code_of(scene.begin().get()), ErrorCode::kTimeout);
  std::ignore = heard_read(*peer);
  ASSERT_TRUE(is_asked_again(scene, *peer));
}

TEST_F(RemoteAsksTest, CloseEndsReadsThatWaitForAnswersOrForALink) {
  for (const bool has_link : {true, false}) {
    for (const bool by_dispatcher : {true, false}) {
      PlayedPeers scene;
      std::unique_ptr<RawPeer> peer;
      if (has_link) peer = scene.peer(scene.one);
      auto got = scene.begin();
      if (has_link) std::ignore = heard_read(*peer);
      if (by_dispatcher) {
        scene.reading.dispatcher->close(0ms);
      } else {
        scene.reading.asks->close();
      }
      EXPECT_EQ(code_of(got.get()), ErrorCode::kCancelled);
      EXPECT_EQ(code_of(scene.begin().get()), ErrorCode::kCancelled) << "and later ones";
    }
  }
}

TEST_F(RemoteAsksTest, APeerThatTheEndpointDoesNotHaveIsRefused) {
  PlayedPeers scene;
  EXPECT_EQ(code_of(open_remote_files(*scene.reading.asks, {.rank = 5, .place = "host5"})),
            ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace deepfreeze::nodes_test

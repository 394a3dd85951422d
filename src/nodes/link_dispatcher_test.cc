#include "nodes/link_dispatcher.h"

#include <mutex>
#include <new>

#include "base/log.h"
#include "nodes/remote_fixture.h"
#include "support/no_more_threads.h"

namespace deepfreeze::nodes_test {
namespace {

using LinkDispatcherTest = LinkTest;

// Keeps all that it is given.
class Keeper final : public LinkTaker {
 public:
  void take(std::uint32_t rank, LinkMessage message) override {
    const std::lock_guard lock(mutex_);
    EXPECT_EQ(rank, 1U);
    kinds_.push_back(message.index());
  }
  void note(const LinkState& state) override {
    const std::lock_guard lock(mutex_);
    (state.is_up ? ups_ : losses_) += 1;
  }
  void end() override {
    const std::lock_guard lock(mutex_);
    ++ends_;
  }
  [[nodiscard]] std::vector<std::size_t> kinds() const { return locked(kinds_); }
  [[nodiscard]] int ups() const { return locked(ups_); }
  [[nodiscard]] int losses() const { return locked(losses_); }
  [[nodiscard]] int ends() const { return locked(ends_); }

 private:
  template <class T>
  [[nodiscard]] T locked(const T& value) const {
    const std::lock_guard lock(mutex_);
    return value;
  }
  mutable std::mutex mutex_;
  std::vector<std::size_t> kinds_;
  int ups_ = 0;
  int losses_ = 0;
  int ends_ = 0;
};

std::vector<LinkMessage> one_of_each() {
  return {LinkPart{.file = "f"},
          LinkSealed{},
          LinkFailed{},
          LinkDecided{},
          LinkAsk{},
          LinkUnknown{},
          LinkGone{},
          LinkRead{.number = 1, .file = "f"},
          LinkBytes{},
          LinkError{.number = 3},
          LinkProtected{}};
}

// Memory is refused, as often as it is asked.
class Refused final : public LinkTaker {
 public:
  void take(std::uint32_t /*rank*/, LinkMessage /*message*/) override { throw std::bad_alloc(); }
  void note(const LinkState& /*state*/) override { throw std::bad_alloc(); }
  void end() override {}
};

struct TakenApart {
  Node zero{0};
  Node one{1};
  std::unique_ptr<Endpoint> endpoint = zero.start({one.awaited()});
  std::unique_ptr<RawPeer> peer = greeted(one, zero.address);
  Keeper reads;
  Keeper answers;
  Keeper commits;
};

TEST_F(LinkDispatcherTest, ATakerThatIsRefusedMemoryLosesItsOwnMessagesAlone) {
  set_log_sink([](std::string_view) {});
  TakenApart scene;
  Refused refused;
  {
    const auto dispatcher =
        LinkDispatcher::start(*scene.endpoint, {&refused, &scene.answers, &scene.commits});
    ASSERT_TRUE(dispatcher);
    for (const LinkMessage& message : one_of_each()) ASSERT_TRUE(scene.peer->say_message(message));
    ASSERT_TRUE(await([&] { return scene.answers.kinds().size() == 2; }));
    EXPECT_EQ(scene.commits.kinds().size(), 7U);
    EXPECT_GE(scene.commits.ups(), 1) << "news go to all";
  }
  set_log_sink({});
}

TEST_F(LinkDispatcherTest, GivesEachKindToItsTakerAndNewsToAll) {
  TakenApart scene;
  const auto dispatcher =
      LinkDispatcher::start(*scene.endpoint, {&scene.reads, &scene.answers, &scene.commits});
  ASSERT_TRUE(dispatcher);
  for (const LinkMessage& message : one_of_each()) ASSERT_TRUE(scene.peer->say_message(message));
  ASSERT_TRUE(await([&] { return scene.answers.kinds().size() == 2; }));
  EXPECT_EQ(scene.commits.kinds(), (std::vector<std::size_t>{1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(scene.reads.kinds(), (std::vector<std::size_t>{8}));
  EXPECT_EQ(scene.answers.kinds(), (std::vector<std::size_t>{9, 10}));
  scene.peer.reset();
  for (const Keeper* keeper : {&scene.reads, &scene.answers, &scene.commits}) {
    ASSERT_TRUE(await([&] { return keeper->losses() == 1; }));
    EXPECT_EQ(keeper->ups(), 1);
  }
}

TEST_F(LinkDispatcherTest, AReadThatNobodyTakesGetsAnErrorAndOthersAreDropped) {
  TakenApart scene;
  const auto dispatcher = LinkDispatcher::start(*scene.endpoint, {});
  ASSERT_TRUE(dispatcher);
  for (const LinkMessage& message : one_of_each()) ASSERT_TRUE(scene.peer->say_message(message));
  const auto answer = scene.peer->hear();
  ASSERT_TRUE(answer);
  EXPECT_EQ(std::get<LinkError>(*answer).number, 1U);
  EXPECT_EQ(std::get<LinkError>(*answer).error.code(), ErrorCode::kUnsupported);
}

TEST_F(LinkDispatcherTest, TellsTheTakersOfTheEndWhoeverCloses) {
  for (const bool closes_itself : {true, false}) {
    TakenApart scene;
    const auto dispatcher =
        LinkDispatcher::start(*scene.endpoint, {&scene.reads, &scene.answers, &scene.commits});
    ASSERT_TRUE(dispatcher);
    if (closes_itself) {
      (*dispatcher)->close(std::chrono::milliseconds(0));
    } else {
      scene.endpoint->close(std::chrono::milliseconds(0));
    }
    for (const Keeper* keeper : {&scene.reads, &scene.answers, &scene.commits}) {
      ASSERT_TRUE(await([&] { return keeper->ends() == 1; }));
    }
    EXPECT_EQ(code_of(scene.endpoint->send(1, LinkAsk{})), ErrorCode::kCancelled);
  }
}

TEST_F(LinkDispatcherTest, NeedsAThread) {
  Node zero(0);
  const auto endpoint = zero.start({});
  const NoMoreThreads scope;
  EXPECT_EQ(code_of(LinkDispatcher::start(*endpoint, {})), ErrorCode::kNoSpace);
}

}  // namespace
}  // namespace deepfreeze::nodes_test

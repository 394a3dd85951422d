// Heirs of both leaders of a job, in one process.
#include "nodes/leader_heir.h"

#include <atomic>
#include <thread>
#include <tuple>

#include "base/clock.h"
#include "base/log.h"
#include "link/address.h"
#include "nodes/nodes_fixture.h"
#include "support/passing_vfs.h"

namespace deepfreeze::nodes_test {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLong{60'000};  // never waited for in a test that passes

struct Dead {
  explicit Dead(std::uint32_t number) : rank(number) {}
  std::uint32_t rank;
  TlsIdentity identity = TlsIdentity::make().value();
  UniqueFd listener = listen_on(LinkAddress::parse("127.0.0.1:0").value()).value();
};

class HeirsOfLeaders : public TwoNodes {
 protected:
  HeirsOfLeaders() {
    set_log_sink([](std::string_view) {});
  }
  ~HeirsOfLeaders() override { set_log_sink({}); }

  [[nodiscard]] LeaderHandover handover_of(const Dead& dead, const Dead& other) const {
    LeftLeader left{.run_id = run_id_, .rank = dead.rank, .nodes = {{0, 1}, {2, 3}}};
    LinkPeer peer{.rank = other.rank, .key = other.identity.public_key()};
    if (other.rank == 0) {
      peer.addresses = {LinkAddress::of_socket(zero_.listener.get()).value()};
      peer.is_dialed = true;
    }
    left.peers = {peer};
    return LeaderHandover::make(left, dead.identity).value();
  }
  [[nodiscard]] Result<std::unique_ptr<LeaderHeir>> start(TestNode& node, bool has_save = true) {
    const bool is_zero = node.ledger.own() == 0;
    const Dead& own = is_zero ? zero_ : two_;
    LeaderHeir::Left left{.handover = handover_of(own, is_zero ? two_ : zero_), .listener = {}};
    if (is_zero) left.listener = UniqueFd(::dup(zero_.listener.get()));
    if (has_save) left.identity = identity(own.rank);
    return LeaderHeir::start(std::move(left), std::make_unique<PassingVfs>(node.disk));
  }
  [[nodiscard]] NodeSave save_of(const TestNode& node, milliseconds wait = kLong) const {
    return {.identity = identity(node.ledger.own()), .commit_wait_max = wait};
  }
  static LeaderHeir::Patience patient() {
    return {.is_awaited = [] { return false; }, .quiet_max = milliseconds(0)};
  }
  // The other leader's heir, in a thread of its own.
  [[nodiscard]] std::thread commit_far(std::optional<Result<Manifest>>& outcome,
                                       std::optional<Error> failure = {}) {
    return std::thread([this, &outcome, failure] {
      auto heir = start(far_);
      NodeSave save = save_of(far_);
      save.failure = failure;
      if (heir) outcome = (*heir)->commit(save, patient());
    });
  }
  // Until that thread has ended.
  static void answer_until(LeaderHeir& heir, std::thread& thread, const std::atomic<bool>& done) {
    while (!done) std::ignore = heir.answer(milliseconds(10));
    thread.join();
  }

  Dead zero_{0};
  Dead two_{2};
  std::optional<Result<Manifest>> far_outcome_;
};

TEST_F(HeirsOfLeaders, CommitTheSaveOnBothNodes) {
  seal_all();
  std::thread far = commit_far(far_outcome_);
  auto near = start(near_);
  ASSERT_TRUE(near) << near.error().message();
  const auto committed = (*near)->commit(save_of(near_), patient());
  ASSERT_TRUE(committed) << committed.error().message();
  far.join();
  ASSERT_TRUE(far_outcome_ && *far_outcome_);
  EXPECT_EQ(outcome_on(near_), Outcome::kCommitted);
  EXPECT_EQ(record_on(near_), record_on(far_));
}

// Parity is the trainer's: nobody may wait for its word.
TEST_F(HeirsOfLeaders, SayThatParityHasEnded) {
  const auto near = start(near_);
  ASSERT_TRUE(near) << near.error().message();
  const auto endpoint =
      Endpoint::start(
          two_.identity,
          {.run = run_id_,
           .rank = 2,
           .listener = UniqueFd(::dup(two_.listener.get())),
           .peers = {{.rank = 0,
                      .key = zero_.identity.public_key(),
                      .addresses = {LinkAddress::of_socket(zero_.listener.get()).value()},
                      .is_dialed = true}}})
          .value();
  while (const auto event = endpoint->receive(kLong)) {
    if (!event->message) continue;
    const auto* said = std::get_if<LinkProtected>(&*event->message);
    ASSERT_NE(said, nullptr);
    EXPECT_EQ(said->stage, ParityStage::kEnded);
    return;
  }
  ADD_FAILURE() << "nothing was said";
}

TEST_F(HeirsOfLeaders, GiveUpASaveOfWhichAPartHasFailed) {
  for (const std::uint32_t rank : {0U, 1U}) seal(near_, rank);
  seal(far_, 3);
  std::thread far = commit_far(far_outcome_, Error(ErrorCode::kCancelled, "not captured"));
  auto near = start(near_);
  ASSERT_TRUE(near);
  const auto committed = (*near)->commit(save_of(near_), patient());
  ASSERT_FALSE(committed);
  EXPECT_TRUE(committed.error().message().contains("not captured")) << committed.error().message();
  far.join();
  EXPECT_EQ(outcome_on(near_), Outcome::kAborted);
  EXPECT_EQ(outcome_on(far_), Outcome::kAborted);
}

// Rank 0 died with nothing under way, or with this save, while the other one's answer was lost: its
// report comes before or after its heir knows that there is nothing to commit.
enum class Left : std::uint8_t { kNone, kReported, kNotReported };
class AnswersAbout : public HeirsOfLeaders, public testing::WithParamInterface<Left> {
 protected:
  // The other leader's end, while rank 0's heir answers.
  void answer() {
    std::atomic<bool> done = false;
    auto near = start(near_, GetParam() != Left::kNone);
    ASSERT_TRUE(near) << near.error().message();
    if (GetParam() == Left::kNotReported) std::ignore = (*near)->answer(milliseconds(0));
    std::thread far([&] {
      std::thread inner = commit_far(far_outcome_);
      inner.join();
      done = true;
    });
    if (GetParam() == Left::kReported) std::this_thread::sleep_for(milliseconds(200));
    answer_until(**near, far, done);
    ASSERT_TRUE(far_outcome_);
  }
};

TEST_P(AnswersAbout, ACommittedSave) {
  seal_all();
  const auto zero = nodes_test::TwoNodes::start(near_);
  const auto two = nodes_test::TwoNodes::start(far_);
  EXPECT_FALSE(two->advance().has_value());
  deliver(far_, near_);
  const auto decided = zero->advance();
  ASSERT_TRUE(decided && *decided);
  answer();
  EXPECT_TRUE(*far_outcome_) << far_outcome_->error().message();
  EXPECT_EQ(record_on(near_), record_on(far_));
}

TEST_P(AnswersAbout, ASaveThatNeverCameToRankZeroOrIsGone) {
  for (const std::uint32_t rank : {2U, 3U}) seal(far_, rank);
  answer();
  EXPECT_EQ(code_of(*far_outcome_), ErrorCode::kCancelled);
  EXPECT_FALSE(far_.disk.list(directory_)) << "it was to be removed";
}

INSTANTIATE_TEST_SUITE_P(Left, AnswersAbout,
                         testing::Values(Left::kNone, Left::kReported, Left::kNotReported),
                         [](const auto& test) {
                           return std::to_string(static_cast<int>(test.param));
                         });

TEST_F(HeirsOfLeaders, WaitNoLongerThanForSomethingThatChangesOnceSomebodyWaits) {
  for (const std::uint32_t rank : {0U, 1U}) seal(near_, rank);
  auto near = start(near_);
  ASSERT_TRUE(near);
  std::atomic<bool> is_awaited = false;
  std::thread waits([&] {
    std::this_thread::sleep_for(milliseconds(100));
    is_awaited = true;
  });
  const auto begun = Monotonic::now();
  const auto committed = (*near)->commit(
      save_of(near_),
      {.is_awaited = [&] { return is_awaited.load(); }, .quiet_max = milliseconds(50)});
  EXPECT_EQ(code_of(committed), ErrorCode::kIncomplete);
  EXPECT_TRUE(is_awaited);
  EXPECT_LT(Monotonic::now() - begun, kLong);
  EXPECT_EQ(outcome_on(near_), Outcome::kAborted);
  waits.join();
  seal(far_, 2);
  auto far = start(far_);
  ASSERT_TRUE(far);
  const auto unknown = (*far)->commit(
      save_of(far_), {.is_awaited = [] { return true; }, .quiet_max = milliseconds(50)});
  ASSERT_FALSE(unknown);
  EXPECT_TRUE(unknown.error().message().contains("outcome unknown"));
}

// Until it has been asked so often whether somebody waits: longer than `quiet_max` in all.
class GoesOnWaiting : public HeirsOfLeaders {
 protected:
  static constexpr int kChanges = 15;
  void expect_wait(const std::function<void(int)>& change) {
    for (const std::uint32_t rank : {0U, 1U}) seal(near_, rank);
    auto near = start(near_);
    ASSERT_TRUE(near);
    int asked = 0;
    const auto is_awaited = [&] {
      std::this_thread::sleep_for(milliseconds(50));
      if (++asked <= kChanges) change(asked);
      return true;
    };
    const auto ended =
        (*near)->commit(save_of(near_), {.is_awaited = is_awaited, .quiet_max = milliseconds(500)});
    EXPECT_FALSE(ended);
    EXPECT_GT(asked, kChanges);
  }
};

TEST_F(GoesOnWaiting, WhileFilesCome) {
  expect_wait([this](int number) {
    near_.disk.plant(join_name(directory_, "file" + std::to_string(number)), "");
  });
}

TEST_F(GoesOnWaiting, WhileLettersCome) {
  const LinkPeer zero{.rank = 0,
                      .key = zero_.identity.public_key(),
                      .addresses = {LinkAddress::of_socket(zero_.listener.get()).value()},
                      .is_dialed = true};
  const auto far =
      Endpoint::start(two_.identity, {.run = run_id_, .rank = 2, .peers = {zero}}).value();
  expect_wait([&](int) {
    while (!far->send(0, LinkAsk{attempt_})) std::this_thread::yield();
  });
}

TEST_F(HeirsOfLeaders, SpeakForNobodyWithoutTheClaim) {
  far_.disk.plant(generation_file_name(1), "{}");
  EXPECT_EQ(code_of(start(far_)), ErrorCode::kNotFound);
  far_.disk.plant(generation_file_name(1),
                  encode_generation(
                      {.run_id = std::string(run_id_.size(), '0'), .generation = 1, .node = 0xa0}));
  EXPECT_EQ(code_of(start(far_)), ErrorCode::kNotFound);
}

// It speaks as the process that was gone, and not for one that has claimed since.
TEST_F(HeirsOfLeaders, AreFencedByAHigherClaim) {
  seal_all();
  far_.disk.plant(generation_file_name(2),
                  encode_generation({.run_id = run_id_, .generation = 2, .node = 0xa0}));
  std::thread far = commit_far(far_outcome_);
  auto near = start(near_);
  ASSERT_TRUE(near);
  const auto committed = (*near)->commit(save_of(near_), patient());
  far.join();
  EXPECT_FALSE(committed);
  ASSERT_TRUE(far_outcome_);
  EXPECT_EQ(code_of(*far_outcome_), ErrorCode::kFenced);
  EXPECT_EQ(outcome_on(near_), Outcome::kAborted);
}

}  // namespace
}  // namespace deepfreeze::nodes_test

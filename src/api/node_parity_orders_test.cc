// One leader, and one rank beside it, whose peers are the test: their orders, answers and disks.
#include <gtest/gtest.h>

#include <chrono>
#include <deque>
#include <fstream>
#include <functional>
#include <map>
#include <new>
#include <thread>

#include "api/node_parity.h"
#include "manifest/record_file.h"
#include "protect/protect_fixture.h"
#include "storage/vfs_name.h"
#include "support/code_of.h"
#include "support/passing_vfs.h"
#include "support/scoped_dir.h"

namespace deepfreeze::node_parity_orders_test {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kSoon{20'000};  // hangs are failures
constexpr milliseconds kLinkMax{500};

// The disk of this node, with what a test does to it.
class OwnDisk final : public PassingVfs {
 public:
  struct Acts {
    std::function<Status(std::string_view name)> at_create = {};
    std::function<void(std::string_view to)> at_rename = {};
  };
  OwnDisk(Vfs& disk, std::shared_ptr<Acts> acts, std::string locked)
      : PassingVfs(disk), acts_(std::move(acts)), locked_(std::move(locked)) {}
  [[nodiscard]] std::string path_of(std::string_view name) const override {
    return name == kNodeFile ? locked_ : PassingVfs::path_of(name);
  }
  Result<std::unique_ptr<File>> create(std::string_view name, Access access) override {
    if (acts_->at_create) {
      if (const Status act = acts_->at_create(name); !act) return std::unexpected(act.error());
    }
    return PassingVfs::create(name, access);
  }
  Status rename_no_replace(std::string_view from, std::string_view to) override {
    if (acts_->at_rename) acts_->at_rename(to);
    return PassingVfs::rename_no_replace(from, to);
  }

 private:
  const std::shared_ptr<Acts> acts_;
  const std::string locked_;  // a real file
};

struct Sent {
  std::uint32_t to = 0;
  LinkProtected message;
};

AttemptName name_of(std::uint64_t step) { return {.step = step, .attempt_id = step}; }
LinkAttempt attempt_of(std::uint64_t step) { return {.step = step, .attempt_id = step}; }

class NodeParityOrders : public testing::Test {
 protected:
  NodeParityOrders() {
    for (const std::size_t node : {0U, 1U}) std::ofstream file(place_of_lock(node));
  }
  // Ranks 0, 1 and 2 lead; `own` is 0 or 1, whose group they are. Rank 3 is on node 1.
  void start(std::size_t own, bool leads = true) {
    NodeParity::Settings settings{.parity = {.data = 1, .parity = 1}};
    for (std::uint32_t node = 0; node < 2; ++node) {
      std::vector<std::uint32_t> ranks = {node};
      if (node == 1) ranks.push_back(3);
      const auto acts = node == own ? acts_ : std::make_shared<OwnDisk::Acts>();
      auto files = std::make_unique<OwnDisk>(disks_[node], acts, place_of_lock(node));
      settings.group.push_back({.node = node, .ranks = ranks, .files = std::move(files)});
    }
    own_ = own;
    settings.own = own;
    settings.leaders = {0, 1, 2};
    settings.leads = leads;
    settings.hold = hold_;
    settings.link_max = kLinkMax;
    settings.send = [this](std::uint32_t rank, const LinkMessage& message) {
      if (is_send_slow_ && std::get<LinkProtected>(message).stage == ParityStage::kAll) {
        std::this_thread::sleep_for(milliseconds(300));
      }
      const std::lock_guard lock(mutex_);
      sent_.push_back({rank, std::get<LinkProtected>(message)});
      changed_.notify_all();
      return Status();
    };
    auto started = NodeParity::start(std::move(settings));
    ASSERT_TRUE(started) << started.error().message();
    parity_ = *std::move(started);
  }
  // Of a node.
  [[nodiscard]] std::string place_of_lock(std::size_t node) const {
    return (root_.path() / std::to_string(node)).string();
  }
  ~NodeParityOrders() override {
    if (parity_) parity_->stop();
  }

  // A checkpoint of both nodes.
  void plant(std::uint64_t step) {
    Manifest manifest;
    manifest.run_id = "0123456789abcdef";
    manifest.point = {.generation = 1, .step = step, .save_index = step, .attempt_id = step};
    manifest.world_size = 2;
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      const PartName part{.rank = rank, .world_size = 2};
      const std::string data = random_text(random_, 70'000);
      const std::string text = sealed_part({.run_id = manifest.run_id,
                                            .attempt_id = step,
                                            .generation = 1,
                                            .step = step,
                                            .save_index = step,
                                            .part = part},
                                           data);
      const auto header = std::as_bytes(std::span(text)).first(text.size() - data.size());
      manifest.files.push_back({.name = sealed_file_name(part),
                                .bytes = text.size(),
                                .header_crc = checked_header_crc(header).value()});
      disks_[rank].plant(path(step, sealed_file_name(part)), text);
    }
    const auto text = encode_manifest(manifest);
    for (SimDisk& disk : disks_) disk.plant(path(step, kManifestFile), text);
  }
  static std::string path(std::uint64_t step, std::string_view file) {
    return attempt_dir_name(name_of(step)) + "/" + std::string(file);
  }
  bool has(std::uint64_t step, std::string_view file) {
    return disks_[own_].contents(path(step, file)).has_value();
  }

  SaveHandle expect(std::uint64_t step) {
    auto state = make_handle_state(step);
    state->reach(Level::kLocal);
    parity_->expect(name_of(step), state);
    return SaveHandle(std::move(state));
  }
  SaveHandle commit(std::uint64_t step) {
    plant(step);
    SaveHandle handle = expect(step);
    parity_->committed(name_of(step));
    return handle;
  }
  void say(std::uint32_t from, ParityStage stage, std::uint64_t step, std::uint64_t turn,
           std::optional<std::uint64_t> last = {}) {
    LinkProtected message{.attempt = attempt_of(step), .stage = stage, .turn = turn};
    if (last) message.last = attempt_of(*last);
    parity_->take(from, message);
  }
  // The next message of that stage; all before it are dropped.
  std::optional<Sent> next(ParityStage stage, milliseconds timeout = kSoon) {
    const auto until = Monotonic::now() + timeout;
    std::unique_lock lock(mutex_);
    while (true) {
      while (!sent_.empty()) {
        const Sent first = sent_.front();
        sent_.pop_front();
        if (first.message.stage == stage) return first;
      }
      if (changed_.wait_until(lock, until) == std::cv_status::timeout) return std::nullopt;
    }
  }
  std::size_t count(ParityStage stage, std::uint32_t to) {
    const std::lock_guard lock(mutex_);
    return static_cast<std::size_t>(std::ranges::count_if(
        sent_, [&](const Sent& one) { return one.message.stage == stage && one.to == to; }));
  }

  const ScopedDir root_;
  std::atomic<bool> is_send_slow_{false};
  std::mt19937_64 random_{7};
  std::array<SimDisk, 2> disks_;
  // They may use no variables of a test: the destructor closes the run.
  std::shared_ptr<OwnDisk::Acts> acts_ = std::make_shared<OwnDisk::Acts>();
  const std::shared_ptr<ParityHold> hold_ = std::make_shared<ParityHold>();
  std::size_t own_ = 0;
  std::unique_ptr<NodeParity> parity_;  // its files must be gone before the disks

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Sent> sent_;
};

TEST_F(NodeParityOrders, ALeaderWritesAndAnswers) {
  start(1);
  const SaveHandle handle = commit(5);
  say(0, ParityStage::kBegin, 5, 4);
  const auto answer = next(ParityStage::kWritten);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->to, 0U);
  EXPECT_EQ(answer->message.turn, 4U);
  EXPECT_TRUE(has(5, parity_file_name(1, 3)));
  EXPECT_FALSE(has(5, kProtectedFile));
  say(0, ParityStage::kAll, 5, 5);
  EXPECT_TRUE(handle.wait(Level::kProtected, kSoon));
  EXPECT_TRUE(has(5, kProtectedFile));
  EXPECT_EQ(disks_[1].pending_count(), 0U) << "a power cut would take the mark back";
  EXPECT_EQ(hold_->held().size(), 0U);
}

TEST_F(NodeParityOrders, WithoutOrdersTheOldestAreGivenUp) {
  start(1);
  std::vector<SaveHandle> handles;
  for (std::uint64_t step = 1; step <= kUnprotectedMax + 1; ++step) handles.push_back(commit(step));
  EXPECT_EQ(code_of(handles[0].wait(Level::kProtected, kSoon)), ErrorCode::kCancelled);
  EXPECT_TRUE(has(1, kUnprotectedFile));
  EXPECT_EQ(code_of(handles[1].wait(Level::kProtected, milliseconds(50))), ErrorCode::kTimeout);
}

// Only rank 0 gives orders.
TEST_F(NodeParityOrders, OrdersOfOthersAreNone) {
  start(1);
  (void)commit(5);
  say(2, ParityStage::kBegin, 5, 4);
  say(2, ParityStage::kAll, 5, 5);
  EXPECT_EQ(hold_->held().size(), 0U);
  EXPECT_FALSE(next(ParityStage::kWritten, milliseconds(50)));
  EXPECT_FALSE(has(5, kProtectedFile));
}

TEST_F(NodeParityOrders, TheOneThatIsBegunIsHeld) {
  start(1);
  plant(5);
  const SaveHandle handle = expect(5);
  say(0, ParityStage::kBegin, 5, 1);
  EXPECT_EQ(hold_->held(), std::vector<AttemptName>{name_of(5)});
  EXPECT_FALSE(next(ParityStage::kWritten, milliseconds(100))) << "it is not committed here";
  parity_->committed(name_of(5));
  EXPECT_TRUE(next(ParityStage::kWritten));
}

TEST_F(NodeParityOrders, AnOrderThatALaterOneHasOvertakenIsDropped) {
  start(1);
  (void)commit(5);
  (void)commit(6);
  say(0, ParityStage::kBegin, 6, 7);
  say(0, ParityStage::kBegin, 5, 6);
  say(0, ParityStage::kAll, 5, 5);
  EXPECT_EQ(hold_->held(), std::vector<AttemptName>{name_of(6)});
  ASSERT_TRUE(next(ParityStage::kWritten));
  EXPECT_FALSE(has(5, kProtectedFile));
}

// The order to begin with step 6 says that all have 5: the message that said so was lost.
TEST_F(NodeParityOrders, ALostEndIsHeardWithTheNextBeginning) {
  start(1);
  const SaveHandle five = commit(5);
  say(0, ParityStage::kBegin, 5, 1);
  ASSERT_TRUE(next(ParityStage::kWritten));
  (void)commit(6);
  say(0, ParityStage::kBegin, 6, 3, 5);
  EXPECT_TRUE(five.wait(Level::kProtected, kSoon));
  EXPECT_TRUE(has(5, kProtectedFile));
  EXPECT_FALSE(has(5, kUnprotectedFile));
}

// Without it, disks would fill, and a caller that waits would wait for the next protected one.
TEST_F(NodeParityOrders, OneThatIsGivenUpIsMarkedAndToldAtOnce) {
  start(1);
  const SaveHandle four = commit(4);
  const SaveHandle five = commit(5);
  say(0, ParityStage::kBegin, 5, 1);
  EXPECT_EQ(code_of(four.wait(Level::kProtected, kSoon)), ErrorCode::kCancelled);
  ASSERT_TRUE(next(ParityStage::kWritten));
  const SaveHandle six = commit(6);
  say(0, ParityStage::kBegin, 6, 2);
  EXPECT_EQ(code_of(five.wait(Level::kProtected, kSoon)), ErrorCode::kCancelled);
  for (const std::uint64_t step : {4U, 5U}) EXPECT_TRUE(has(step, kUnprotectedFile)) << step;
  ASSERT_TRUE(next(ParityStage::kWritten));
  EXPECT_FALSE(has(6, kUnprotectedFile));
  EXPECT_EQ(code_of(six.wait(Level::kProtected, milliseconds(1))), ErrorCode::kTimeout);
}

// Rank 1 answers all the time, and must not put off the order to rank 2.
TEST_F(NodeParityOrders, RepeatsComeInTimeWhateverOthersSay) {
  start(0);
  (void)commit(5);
  ASSERT_TRUE(next(ParityStage::kBegin));
  const auto until = Monotonic::now() + milliseconds(1'500);
  while (Monotonic::now() < until) {
    say(1, ParityStage::kWritten, 5, 1);
    std::this_thread::sleep_for(milliseconds(3));
  }
  EXPECT_GE(count(ParityStage::kBegin, 2), 4U);
}

// Nor may saves.
TEST_F(NodeParityOrders, RepeatsComeInTimeBesideManySaves) {
  start(0);
  (void)commit(5);
  ASSERT_TRUE(next(ParityStage::kBegin));
  for (std::uint64_t step = 6; step < 100; ++step) {
    (void)commit(step);
    std::this_thread::sleep_for(milliseconds(5));
  }
  EXPECT_GE(count(ParityStage::kBegin, 2), 4U);
}

// They come less and less often.
TEST_F(NodeParityOrders, RepeatsBecomeRare) {
  start(0);
  (void)commit(5);
  std::this_thread::sleep_for(milliseconds(1'500));
  EXPECT_LE(count(ParityStage::kBegin, 2), 9U);
}

TEST_F(NodeParityOrders, AMarkThatCanNotBeMadeIsMadeLater) {
  const auto refusals = std::make_shared<std::atomic<int>>(3);
  acts_->at_create = [=](std::string_view name) -> Status {
    if (!name.ends_with(kProtectedFile) || refusals->fetch_sub(1) <= 0) return {};
    return fail(ErrorCode::kNoSpace, "no space");
  };
  start(1);
  const SaveHandle handle = commit(5);
  say(0, ParityStage::kBegin, 5, 1);
  ASSERT_TRUE(next(ParityStage::kWritten));
  say(0, ParityStage::kAll, 5, 2);
  EXPECT_TRUE(handle.wait(Level::kProtected, kSoon));
  EXPECT_TRUE(has(5, kProtectedFile));
  EXPECT_LE(*refusals, 0);
}

TEST_F(NodeParityOrders, EachMarkIsMadeOnce) {
  const auto marks = std::make_shared<std::atomic<int>>(0);
  acts_->at_create = [=](std::string_view name) -> Status {
    if (name.ends_with(kProtectedFile)) ++*marks;
    return {};
  };
  start(1);
  const SaveHandle handle = commit(5);
  say(0, ParityStage::kBegin, 5, 1);
  ASSERT_TRUE(next(ParityStage::kWritten));
  say(0, ParityStage::kAll, 5, 2);
  ASSERT_TRUE(handle.wait(Level::kProtected, kSoon));
  (void)commit(6);
  say(0, ParityStage::kAll, 5, 2);
  say(0, ParityStage::kBegin, 6, 3, 5);
  ASSERT_TRUE(next(ParityStage::kWritten));
  EXPECT_EQ(*marks, 1);
}

TEST_F(NodeParityOrders, AMarkThatIsThereIsEnough) {
  start(1);
  const SaveHandle handle = commit(5);
  disks_[1].plant(path(5, kProtectedFile), "");
  say(0, ParityStage::kBegin, 5, 1);
  ASSERT_TRUE(next(ParityStage::kWritten));
  say(0, ParityStage::kAll, 5, 2);
  EXPECT_TRUE(handle.wait(Level::kProtected, kSoon));
}

// Too many were open here, and rank 0 had begun with it all the same.
TEST_F(NodeParityOrders, AStepThatWasGivenUpMayBeProtectedAfterAll) {
  const auto refuses = std::make_shared<std::atomic<bool>>(true);
  acts_->at_create = [=](std::string_view name) -> Status {
    if (!name.ends_with(kUnprotectedFile) || !*refuses) return {};
    return fail(ErrorCode::kNoSpace, "no space");
  };
  start(1);
  std::vector<SaveHandle> handles;
  for (std::uint64_t step = 1; step <= kUnprotectedMax + 1; ++step) handles.push_back(commit(step));
  say(0, ParityStage::kBegin, 1, 1);
  ASSERT_TRUE(next(ParityStage::kWritten));
  say(0, ParityStage::kAll, 1, 2);
  *refuses = false;
  EXPECT_TRUE(handles.front().wait(Level::kProtected, kSoon));
}

TEST_F(NodeParityOrders, AnOlderSaveThatIsNotCommittedYetIsNotGivenUp) {
  start(1);
  plant(4);
  const SaveHandle four = expect(4);
  (void)commit(5);
  say(0, ParityStage::kBegin, 5, 1);
  ASSERT_TRUE(next(ParityStage::kWritten));
  EXPECT_FALSE(has(4, kUnprotectedFile));
  EXPECT_EQ(code_of(four.wait(Level::kProtected, milliseconds(1))), ErrorCode::kTimeout);
}

// A user's own hand.
TEST_F(NodeParityOrders, ACheckpointThatIsGoneIsNotProtected) {
  start(1);
  const SaveHandle handle = commit(5);
  say(0, ParityStage::kBegin, 5, 1);
  ASSERT_TRUE(next(ParityStage::kWritten));
  const auto entries = disks_[1].list(attempt_dir_name(name_of(5)));
  for (const DirEntry& entry : *entries) {
    ASSERT_TRUE(disks_[1].remove_file(path(5, entry.name)));
  }
  ASSERT_TRUE(disks_[1].remove_dir(attempt_dir_name(name_of(5))));
  say(0, ParityStage::kAll, 5, 2);
  EXPECT_EQ(code_of(handle.wait(Level::kProtected, kSoon)), ErrorCode::kCancelled);
}

// A collector was faster.
TEST_F(NodeParityOrders, ParityOfACheckpointThatIsDeletedMeanwhileIsNone) {
  acts_->at_rename = [&](std::string_view to) {
    if (is_parity_file_name(split_vfs_name(to).leaf)) {
      EXPECT_TRUE(disks_[1].remove_file(path(5, kManifestFile)));
    }
  };
  start(1);
  (void)commit(5);
  say(0, ParityStage::kBegin, 5, 9);
  const auto answer = next(ParityStage::kFailed);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->message.turn, 9U);
}

TEST_F(NodeParityOrders, RefusedMemoryIsAFailure) {
  const auto refusals = std::make_shared<std::atomic<int>>(2);
  acts_->at_create = [=](std::string_view name) -> Status {
    if (refusals->fetch_sub(1) > 0) throw std::bad_alloc();
    (void)name;
    return {};
  };
  start(1);
  (void)commit(5);
  for (const std::uint64_t turn : {1U, 4U}) {
    say(0, ParityStage::kBegin, 5, turn);
    const auto answer = next(ParityStage::kFailed);
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->message.turn, turn);
  }
  EXPECT_FALSE(next(ParityStage::kWritten, milliseconds(100))) << "rank 0 has not said so yet";
  say(0, ParityStage::kBegin, 5, 5);
  EXPECT_TRUE(next(ParityStage::kWritten));
}

// Reading it would take bandwidth, and the newer one would wait.
TEST_F(NodeParityOrders, TheParityOfAnOvertakenCheckpointIsNotFinished) {
  const auto is_begun = std::make_shared<std::atomic<bool>>(false);
  const auto is_overtaken = std::make_shared<std::atomic<bool>>(false);
  acts_->at_create = [=](std::string_view name) -> Status {
    if (!name.starts_with(attempt_dir_name(name_of(5)))) return {};
    *is_begun = true;
    is_begun->notify_all();
    is_overtaken->wait(false);
    return {};
  };
  start(1);
  (void)commit(5);
  say(0, ParityStage::kBegin, 5, 1);
  is_begun->wait(false);
  (void)commit(6);
  say(0, ParityStage::kBegin, 6, 2);
  *is_overtaken = true;
  is_overtaken->notify_all();
  const auto answer = next(ParityStage::kWritten);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->message.attempt.step, 6U);
  EXPECT_FALSE(has(5, parity_file_name(1, 3)));
}

TEST_F(NodeParityOrders, ClosingDoesNotWaitForRankZeroIfThatIsGone) {
  start(1);
  (void)commit(5);
  parity_->note({.rank = 0, .is_up = false});
  const auto began = Monotonic::now();
  parity_->drain(milliseconds(60'000));
  EXPECT_LT(Monotonic::now() - began, milliseconds(30'000));
  EXPECT_GE(Monotonic::now() - began, kLinkMax);
}

TEST_F(NodeParityOrders, ClosingWaitsForTheMark) {
  const auto is_slow = std::make_shared<std::atomic<bool>>(true);
  acts_->at_create = [=](std::string_view name) -> Status {
    if (name.ends_with(kProtectedFile) && is_slow->exchange(false)) {
      std::this_thread::sleep_for(milliseconds(300));
    }
    return {};
  };
  start(1);
  (void)commit(5);
  say(0, ParityStage::kBegin, 5, 1);
  ASSERT_TRUE(next(ParityStage::kWritten));
  say(0, ParityStage::kAll, 5, 2);
  parity_->drain(kSoon);
  EXPECT_TRUE(has(5, kProtectedFile));
}

// Ranks 1 and 2 have no parity yet: rank 0 waits for those that are there.
TEST_F(NodeParityOrders, ClosingOfRankZeroWaitsForLeadersThatAreThere) {
  start(0);
  (void)commit(5);
  const auto drained_after = [&](milliseconds patience) {
    const auto began = Monotonic::now();
    parity_->drain(patience);
    return Monotonic::now() - began;
  };
  parity_->note({.rank = 1, .is_up = false});
  EXPECT_GE(drained_after(kLinkMax + milliseconds(500)), kLinkMax + milliseconds(500));
  parity_->note({.rank = 2, .is_up = false});
  EXPECT_LT(drained_after(milliseconds(60'000)), milliseconds(30'000));
}

TEST_F(NodeParityOrders, ClosingWaitsForAnOrder) {
  start(1);
  const SaveHandle handle = commit(5);
  parity_->note({.rank = 0, .is_up = false});
  parity_->note({.rank = 0, .is_up = true});
  parity_->drain(kLinkMax + milliseconds(500));  // rank 0 is there, and says nothing
  EXPECT_EQ(code_of(handle.wait(Level::kProtected, milliseconds(0))), ErrorCode::kTimeout);
  say(0, ParityStage::kBegin, 5, 1);
  std::jthread rank0([&] {
    if (next(ParityStage::kWritten)) say(0, ParityStage::kAll, 5, 2);
  });
  parity_->drain(kSoon);
  EXPECT_TRUE(has(5, kProtectedFile));
}

// The tests that follow are about rank 3, which sees what the leader of its node has written.
TEST_F(NodeParityOrders, ARankThatDoesNotLeadReadsTheMarks) {
  start(1, false);
  const SaveHandle four = commit(4);
  const SaveHandle five = commit(5);
  EXPECT_EQ(code_of(five.wait(Level::kProtected, milliseconds(50))), ErrorCode::kTimeout);
  disks_[1].plant(path(4, kUnprotectedFile), "");
  disks_[1].plant(path(5, kProtectedFile), "");
  EXPECT_TRUE(five.wait(Level::kProtected, kSoon));
  EXPECT_EQ(code_of(four.wait(Level::kProtected, kSoon)), ErrorCode::kCancelled);
}

TEST_F(NodeParityOrders, ItLooksBeforeItGivesUp) {
  start(1, false);
  std::vector<SaveHandle> handles;
  for (std::uint64_t step = 1; step <= 2 * kUnprotectedMax; ++step) {
    plant(step);
    disks_[1].plant(path(step, kProtectedFile), "");
    handles.push_back(expect(step));
    parity_->committed(name_of(step));
  }
  parity_->stop();
  for (const SaveHandle& handle : handles) EXPECT_TRUE(handle.wait(Level::kProtected, kSoon));
}

TEST_F(NodeParityOrders, ItGivesUpOnlyStepsOfWhichNothingIsSaid) {
  start(1, false);
  std::vector<SaveHandle> handles;
  for (std::uint64_t step = 1; step <= kUnprotectedMax; ++step) handles.push_back(commit(step));
  disks_[1].plant(path(2, kUnprotectedFile), "");
  handles.push_back(commit(kUnprotectedMax + 1));
  EXPECT_EQ(code_of(handles[1].wait(Level::kProtected, kSoon)), ErrorCode::kCancelled);
  EXPECT_EQ(code_of(handles[0].wait(Level::kProtected, milliseconds(50))), ErrorCode::kTimeout)
      << "its parity is slow";
  handles.push_back(commit(kUnprotectedMax + 2));
  EXPECT_EQ(code_of(handles[0].wait(Level::kProtected, kSoon)), ErrorCode::kCancelled);
  EXPECT_EQ(code_of(handles[2].wait(Level::kProtected, milliseconds(50))), ErrorCode::kTimeout);
}

TEST_F(NodeParityOrders, ItsClosingWaitsForTheLeadersWord) {
  start(1, false);
  const SaveHandle handle = commit(5);
  std::jthread leader([&] {
    std::this_thread::sleep_for(milliseconds(300));
    disks_[1].plant(path(5, kProtectedFile), "");
  });
  parity_->drain(kSoon);
  EXPECT_TRUE(has(5, kProtectedFile));
  EXPECT_TRUE(handle.wait(Level::kProtected, milliseconds(0)));
}

TEST_F(NodeParityOrders, ItsClosingWaitsAsLongAsItsLeaderIsThere) {
  auto leader = FileLock::take(place_of_lock(1));
  ASSERT_TRUE(leader);
  start(1, false);
  const SaveHandle handle = commit(5);
  const auto began = Monotonic::now();
  parity_->drain(2 * kLinkMax);
  EXPECT_GE(Monotonic::now() - began, 2 * kLinkMax);
  std::jthread late([&] {
    std::this_thread::sleep_for(2 * kLinkMax);
    disks_[1].plant(path(5, kProtectedFile), "");
  });
  parity_->drain(kSoon);
  EXPECT_TRUE(handle.wait(Level::kProtected, milliseconds(0)));
}

TEST_F(NodeParityOrders, ALeaderIsThereUntilItHasStopped) {
  start(1);
  EXPECT_TRUE(FileLock::is_taken(place_of_lock(1)));
  parity_->stop();
  EXPECT_FALSE(FileLock::is_taken(place_of_lock(1)));
}

TEST_F(NodeParityOrders, AtTheEndTheLeaderMarksStepsThatGotNoParity) {
  start(1);
  const SaveHandle handle = commit(5);
  parity_->stop();
  EXPECT_TRUE(has(5, kUnprotectedFile));
  EXPECT_EQ(code_of(handle.wait(Level::kProtected, kSoon)), ErrorCode::kCancelled);
}

// Another node may have it as protected: the word of rank 0 was lost.
TEST_F(NodeParityOrders, AtTheEndACheckpointWithParityIsNotGivenUp) {
  start(1);
  const SaveHandle four = commit(4);
  const SaveHandle five = commit(5);
  say(0, ParityStage::kBegin, 5, 1);
  ASSERT_TRUE(next(ParityStage::kWritten));
  parity_->stop();
  EXPECT_EQ(code_of(five.wait(Level::kProtected, kSoon)), ErrorCode::kCancelled);
  EXPECT_FALSE(has(5, kUnprotectedFile));
  EXPECT_TRUE(has(4, kUnprotectedFile));
}

TEST_F(NodeParityOrders, AtTheEndNothingIsProtectedWithoutItsMark) {
  acts_->at_create = [](std::string_view name) -> Status {
    if (name.ends_with(kProtectedFile)) return fail(ErrorCode::kNoSpace, "no space");
    return {};
  };
  start(1);
  const SaveHandle handle = commit(5);
  say(0, ParityStage::kBegin, 5, 1);
  ASSERT_TRUE(next(ParityStage::kWritten));
  say(0, ParityStage::kAll, 5, 2);
  parity_->drain(milliseconds(60'000));  // which does not wait for a disk that is full
  parity_->stop();
  EXPECT_EQ(code_of(handle.wait(Level::kProtected, kSoon)), ErrorCode::kCancelled);
  EXPECT_FALSE(handle.status().is_protected);
}

// An agent has taken the dead trainer's place, and its link is up.
TEST_F(NodeParityOrders, ClosingDoesNotWaitForADeadTrainersAgent) {
  start(1);
  (void)commit(5);
  parity_->note({.rank = 0, .is_up = false});
  parity_->note({.rank = 0, .is_up = true});
  say(0, ParityStage::kEnded, 0, 0);
  const auto began = Monotonic::now();
  parity_->drain(milliseconds(60'000));
  EXPECT_LT(Monotonic::now() - began, milliseconds(30'000));
}

TEST_F(NodeParityOrders, AMarkThatCanNotBeMadeKeepsNoOther) {
  acts_->at_create = [](std::string_view name) -> Status {
    if (name.ends_with(kUnprotectedFile)) return fail(ErrorCode::kNoSpace, "no space");
    return {};
  };
  start(1);
  std::vector<SaveHandle> handles;
  const std::uint64_t last = kVerdictsMax + 3;
  for (std::uint64_t step = 1; step <= last; ++step) {
    handles.push_back(commit(step));
    say(0, ParityStage::kBegin, step, step);
    ASSERT_TRUE(next(ParityStage::kWritten));
  }
  say(0, ParityStage::kAll, last, last + 1);
  EXPECT_TRUE(handles.back().wait(Level::kProtected, kSoon));
  EXPECT_EQ(code_of(handles.front().wait(Level::kProtected, kSoon)), ErrorCode::kCancelled)
      << "more of them are not kept for later";
}

// It was given up, marked, and begun after all: other nodes may mark it as protected.
TEST_F(NodeParityOrders, ParityTakesTheMarkOfOneThatWasGivenUpAway) {
  start(1);
  std::vector<SaveHandle> handles;
  for (std::uint64_t step = 1; step <= kUnprotectedMax + 1; ++step) handles.push_back(commit(step));
  EXPECT_EQ(code_of(handles[0].wait(Level::kProtected, kSoon)), ErrorCode::kCancelled);
  ASSERT_TRUE(has(1, kUnprotectedFile));
  say(0, ParityStage::kBegin, 1, 1);
  ASSERT_TRUE(next(ParityStage::kWritten));
  EXPECT_FALSE(has(1, kUnprotectedFile));
  for (const auto& image : disks_[1].crash_images(50, 1)) {
    EXPECT_FALSE(image->contents(path(1, kUnprotectedFile))) << image->label();
  }
}

// The leader gave it up without a mark, or does not know of it.
TEST_F(NodeParityOrders, AProtectedCheckpointEndsThoseBeforeIt) {
  start(1, false);
  const SaveHandle four = commit(4);
  const SaveHandle five = commit(5);
  const SaveHandle six = commit(6);
  disks_[1].plant(path(5, kProtectedFile), "");
  EXPECT_EQ(code_of(four.wait(Level::kProtected, kSoon)), ErrorCode::kCancelled);
  EXPECT_TRUE(five.wait(Level::kProtected, kSoon));
  EXPECT_EQ(code_of(six.wait(Level::kProtected, milliseconds(50))), ErrorCode::kTimeout);
}

TEST_F(NodeParityOrders, OneThatWasProtectedAndThenDeletedWasProtected) {
  start(1, false);
  const SaveHandle five = commit(5);
  disks_[1].plant(path(5, kProtectedFile), "");
  std::this_thread::sleep_for(2 * kMarkPauseMax);  // nobody waits for it
  const SaveHandle six = commit(6);
  disks_[1].plant(path(6, kProtectedFile), "");
  const auto entries = disks_[1].list(attempt_dir_name(name_of(5)));
  for (const DirEntry& entry : *entries) {
    ASSERT_TRUE(disks_[1].remove_file(path(5, entry.name)));
  }
  ASSERT_TRUE(disks_[1].remove_dir(attempt_dir_name(name_of(5))));
  EXPECT_TRUE(six.wait(Level::kProtected, kSoon));
  const Status waited = five.wait(Level::kProtected, kSoon);
  EXPECT_TRUE(waited) << waited.error().message();
}

TEST_F(NodeParityOrders, ClosingOfRankZeroTellsAllFirst) {
  start(0);
  (void)commit(5);
  ASSERT_TRUE(next(ParityStage::kBegin));
  while (!has(5, parity_file_name(0, 3))) std::this_thread::sleep_for(milliseconds(5));
  is_send_slow_ = true;
  say(1, ParityStage::kWritten, 5, 1);
  std::jthread dispatcher([&] { say(2, ParityStage::kWritten, 5, 1); });
  parity_->drain(kSoon);
  EXPECT_TRUE(has(5, kProtectedFile));
  EXPECT_EQ(count(ParityStage::kAll, 1), 1U);
  EXPECT_EQ(count(ParityStage::kAll, 2), 1U);
}

// It was given up because too many were open, and could not be marked; then rank 0 begins with it.
TEST_F(NodeParityOrders, OneThatWasGivenUpAndIsBegunIsNotToldSo) {
  const auto is_refused = std::make_shared<std::atomic<bool>>(true);
  acts_->at_create = [=](std::string_view name) -> Status {
    if (!name.ends_with(kUnprotectedFile) || !*is_refused) return {};
    return fail(ErrorCode::kNoSpace, "no mark");
  };
  start(1);
  const SaveHandle first = commit(1);
  for (std::uint64_t step = 2; step <= kUnprotectedMax + 1; ++step) (void)commit(step);
  say(0, ParityStage::kBegin, 1, 1);
  *is_refused = false;
  ASSERT_TRUE(next(ParityStage::kWritten));
  EXPECT_EQ(code_of(first.wait(Level::kProtected, milliseconds(0))), ErrorCode::kTimeout);
  say(0, ParityStage::kAll, 1, 2);
  EXPECT_TRUE(first.wait(Level::kProtected, kSoon));
}

TEST_F(NodeParityOrders, OneThatIsBegunWhileItIsMarkedIsNotToldSo) {
  const auto is_first = std::make_shared<std::atomic<bool>>(true);
  acts_->at_create = [this, is_first](std::string_view name) -> Status {
    if (name == path(1, kUnprotectedFile) && is_first->exchange(false)) {
      say(0, ParityStage::kBegin, 1, 1);
    }
    return {};
  };
  start(1);
  const SaveHandle first = commit(1);
  for (std::uint64_t step = 2; step <= kUnprotectedMax + 1; ++step) (void)commit(step);
  ASSERT_TRUE(next(ParityStage::kWritten));
  EXPECT_FALSE(*is_first);
  EXPECT_EQ(code_of(first.wait(Level::kProtected, milliseconds(0))), ErrorCode::kTimeout);
  say(0, ParityStage::kAll, 1, 2);
  EXPECT_TRUE(first.wait(Level::kProtected, kSoon));
  EXPECT_FALSE(has(1, kUnprotectedFile));
}

// Nobody tells it that its leader is dead.
TEST_F(NodeParityOrders, ItsClosingWaitsForItsLeaderForAMoment) {
  start(1, false);
  (void)commit(5);
  const auto began = Monotonic::now();
  parity_->drain(milliseconds(60'000));
  EXPECT_LT(Monotonic::now() - began, milliseconds(30'000));
}

// Without a wait: a status alone.
TEST_F(NodeParityOrders, ItsStatusComesToKnow) {
  start(1, false);
  const SaveHandle handle = commit(5);
  disks_[1].plant(path(5, kProtectedFile), "");
  const auto until = Monotonic::now() + kSoon;
  while (!handle.status().is_protected && Monotonic::now() < until) {
    std::this_thread::sleep_for(milliseconds(5));
  }
  EXPECT_TRUE(handle.status().is_protected);
}

}  // namespace
}  // namespace deepfreeze::node_parity_orders_test

// The levels that a save reports while its blocks have no checksums yet, as those from a device.
#include "save/save_job.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>

#include "base/log.h"
#include "manifest/claims.h"
#include "manifest/run_file.h"
#include "save/left_trainer.h"
#include "support/sim_disk.h"

namespace deepfreeze {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kNow{0};
constexpr milliseconds kDeadline{60'000};

class SaveJobTest : public testing::Test {
 protected:
  SaveJobTest() {
    const std::string run_id = create_or_open_run(disk_, std::nullopt)->run_id;
    const std::uint64_t generation = claim_generation(disk_, run_id, std::nullopt)->generation;
    trainer_ = std::make_unique<LeftTrainer>(disk_, run_id, generation);
    engine_ = *WriteEngine::open({.mode = IoMode::kBuffered, .writes_in_flight = 1});
  }
  ~SaveJobTest() override {
    capture_->cancel();
    if (worker_.joinable()) worker_.join();
  }

  // A save whose worker has begun, and of which nothing is copied.
  void begin(bool has_agent, bool confirm = false, CommitNode commit_node = {}) {
    const SavePlan& plan = trainer_->plan();
    const Image image(trainer_->arena(), plan.image_sections(), kSlabBytes);
    capture_ = std::make_shared<LiveCapture>(CaptureSpec{
        .image = image, .block_bytes = kBlockBytes, .items = plan.items, .on_slab = {}});
    const SaveJobSettings settings = {.write_engine = *engine_,
                                      .commit_wait_max = {},
                                      .confirm = confirm,
                                      .handover = has_agent ? &trainer_->handover() : nullptr,
                                      .commit_node = std::move(commit_node)};
    job_ = std::make_shared<SaveJob>(disk_, plan, image, settings, capture_, state_);
    capture_->belongs_to(job_);
    worker_ = std::jthread([this] { is_committed_ = job_->settle(job_->write()); });
  }
  void copy_all() {
    capture_->session().release_all();
    capture_->session().help();
  }
  void expect_committed() {
    EXPECT_TRUE(handle_.wait(Level::kLocal, kDeadline));
    worker_.join();
    EXPECT_TRUE(is_committed_);
    EXPECT_EQ(disk_.contents(trainer_->path_of(0)), trainer_->whole_file(0));
  }
  [[nodiscard]] bool is(Level level) const { return handle_.wait(level, kNow).has_value(); }
  void await(HandoverState state) const {
    while (trainer_->left().state != state) std::this_thread::yield();
  }

  SimDisk disk_;
  std::unique_ptr<LeftTrainer> trainer_;
  std::unique_ptr<WriteEngine> engine_;
  const std::shared_ptr<SaveHandle::State> state_ = make_handle_state(5);
  const SaveHandle handle_{state_};
  std::shared_ptr<LiveCapture> capture_;
  std::shared_ptr<SaveJob> job_;
  bool is_committed_ = false;
  std::jthread worker_;
};

TEST_F(SaveJobTest, IsCapturedBeforeItsChecksumsAndCommittedAfterThem) {
  begin(false);
  EXPECT_FALSE(is(Level::kCaptured));
  job_->copied();
  EXPECT_TRUE(is(Level::kCaptured));
  EXPECT_FALSE(is(Level::kLocal));
  copy_all();
  expect_committed();
}

// The other process checks the bytes by the checksums.
TEST_F(SaveJobTest, WithAnAgentItIsCapturedOnceItCanBeFinished) {
  begin(true);
  await(HandoverState::kPlanned);
  job_->copied();
  EXPECT_TRUE(handle_.wait_copied(kNow));
  EXPECT_FALSE(is(Level::kCaptured));
  EXPECT_EQ(trainer_->left().state, HandoverState::kPlanned);
  copy_all();
  EXPECT_TRUE(handle_.wait(Level::kCaptured, kDeadline));
  expect_committed();
}

class ConfirmedSave : public SaveJobTest, public testing::WithParamInterface<bool> {};

// The leader of a node: the others must not wait for its report.
TEST_F(SaveJobTest, AnExceptionIsReportedToTheOtherNodes) {
  std::optional<Error> reported;
  begin(false, false, [&](const Identity&, std::optional<Error> failure) -> Result<Manifest> {
    reported = std::move(failure);
    return fail(ErrorCode::kCancelled, "given up");
  });
  capture_->cancel();
  job_->capture_failed(Error(ErrorCode::kIo, "so that its worker ends"));
  worker_.join();
  reported.reset();
  job_->settle_failed(Error(ErrorCode::kNoSpace, "no memory"));
  ASSERT_TRUE(reported);
  EXPECT_EQ(reported->code(), ErrorCode::kNoSpace);
}

TEST_P(ConfirmedSave, ItsChecksumsMayComeBeforeTheConfirmation) {
  begin(GetParam(), true);
  if (GetParam()) await(HandoverState::kPlanned);
  copy_all();
  EXPECT_TRUE(handle_.wait_copied(kDeadline));
  EXPECT_FALSE(handle_.wait(Level::kCaptured, milliseconds(100)));  // at any progress of the worker
  job_->captured({});
  EXPECT_TRUE(handle_.wait(Level::kCaptured, kDeadline));
  expect_committed();
}

INSTANTIATE_TEST_SUITE_P(WithAnAgent, ConfirmedSave, testing::Bool());

TEST_F(SaveJobTest, ATornItemFailsTheSaveBeforeItsChecksums) {
  begin(false, true);
  job_->copied();
  job_->captured({"a"});
  worker_.join();
  EXPECT_FALSE(is_committed_);
  EXPECT_EQ(handle_.status().error->code(), ErrorCode::kTornCapture);
}

}  // namespace
}  // namespace deepfreeze

// The moment at which a capture from devices reports all as copied, and its calls of the driver.
#include <sched.h>

#include <thread>

#include "staging/device_fixture.h"

namespace deepfreeze {
namespace {

using Streams = std::vector<DeviceStream>;

// The test serves the devices itself: no thread of the engine does.
class DeviceArrivals : public DeviceCaptureTest {
 protected:
  static constexpr std::uint64_t kBatch = kBatchSlabs * kSlab;

  void give_all() {
    session_->release_all(Streams{{0, fake_driver::make_stream(0)}});
    session_->enqueue();
  }
  [[nodiscard]] bool image_holds(std::byte value) const {
    return std::ranges::all_of(image().at(0, image().end()),
                               [&](std::byte each) { return each == value; });
  }
};

TEST_F(DeviceArrivals, CopiedIsSaidWhenAllHasLandedAndBeforeAnyChecksum) {
  constexpr int kBatches = 3;
  add(kBatches * kBatch, kFirst);
  open();
  give_all();
  for (int batch = 0; batch < kBatches; ++batch) {
    EXPECT_EQ(times_copied_, 0) << "after " << batch << " batches";
    EXPECT_TRUE(session_->arrive(true));
  }
  EXPECT_EQ(times_copied_, 1);
  EXPECT_TRUE(image_holds(kBefore));
  EXPECT_EQ(session_->times().copied_bytes, kBatches * kBatch);
  EXPECT_EQ(taken_slabs_, 0);
  EXPECT_FALSE(session_->done());
  for (int batch = 0; batch < kBatches; ++batch) {
    EXPECT_FALSE(is_done_) << "after " << batch << " batches";
    EXPECT_TRUE(session_->arrive(true));
  }
  EXPECT_FALSE(session_->arrive(true));
  expect_captured(kBefore);
}

// A batch that has landed is handed on, even if a thread waits for one that has not.
TEST_F(DeviceArrivals, OneThreadWaitsAndTheOthersHandOn) {
  add(kBatch, kFirst);
  add(2 * kBatch, kSecond);
  open();
  const Streams training = {{0, fake_driver::make_stream(0)}};
  session_->release(kFirst, training);
  session_->enqueue();
  EXPECT_TRUE(session_->arrive(true));  // the first has landed
  fake_driver::hold();
  session_->release(kSecond, training);
  session_->enqueue();
  std::jthread waiting([this] { EXPECT_TRUE(session_->arrive(true)); });
  while (fake_driver::calls("cuEventSynchronize") < 2) ::sched_yield();
  EXPECT_TRUE(session_->arrive(false));
  EXPECT_EQ(taken_slabs_, static_cast<int>(kBatchSlabs));
  EXPECT_EQ(times_copied_, 0);
  fake_driver::let_go();
  waiting.join();
  while (session_->arrive(true)) {
  }
  expect_captured(kBefore);
}

// A thread that has nothing to do is woken by the one that waits for the batch.
TEST_F(DeviceArrivals, ABatchThatLandsIsHandedOnByAFreeThread) {
  add(kBatch, kFirst);
  open();
  fake_driver::hold();
  give_all();
  std::jthread waiting([this] { EXPECT_TRUE(session_->arrive(true)); });
  while (fake_driver::calls("cuEventSynchronize") < 1) ::sched_yield();
  std::jthread free([this] { EXPECT_TRUE(session_->arrive(true)); });
  fake_driver::let_go();
  waiting.join();
  free.join();
  expect_captured(kBefore);
}

class DeviceAndHost : public DeviceArrivals, public testing::WithParamInterface<bool> {};

TEST_P(DeviceAndHost, CopiedIsSaidWhenBothAre) {
  add(kBatch, kFirst);
  add(3 * kBlock, kSecond, kHostMemory);
  open();
  give_all();
  const auto copy_host = [this] { session_->help(); };
  const auto await_device = [this] { EXPECT_TRUE(session_->arrive(true)); };
  GetParam() ? copy_host() : await_device();
  EXPECT_EQ(times_copied_, 0);
  GetParam() ? await_device() : copy_host();
  EXPECT_EQ(times_copied_, 1);
  EXPECT_TRUE(image_holds(kBefore));
  EXPECT_TRUE(session_->arrive(true));
  expect_captured(kBefore);
}

INSTANTIATE_TEST_SUITE_P(HostFirst, DeviceAndHost, testing::Bool());

// The witness of a paranoid session compares while it hands on.
TEST_F(DeviceArrivals, AComparedBatchIsCopiedOnlyThen) {
  add(2 * kBatch, kFirst);
  open(0, true);
  give_all();
  for (int step = 0; step < 4; ++step) {
    EXPECT_EQ(times_copied_, 0) << "after " << step << " steps";
    EXPECT_TRUE(session_->arrive(true));
  }
  EXPECT_EQ(times_copied_, 1);
  expect_captured(kBefore);
}

// As when a save takes over a capture that began early: its streams may be refused, and no copy is
// left that they could order.
TEST_F(DeviceArrivals, AfterTheLastLandingNoErrorEndsIt) {
  add(2 * kBatch, kFirst);
  open();
  give_all();
  for (int batch = 0; batch < 2; ++batch) EXPECT_TRUE(session_->arrive(true));
  EXPECT_EQ(times_copied_, 1);
  fake_driver::fail_call("cuStreamIsCapturing", 1, 2);
  session_->release_all(Streams{{0, fake_driver::make_stream(0)}});
  EXPECT_TRUE(errors().empty());
  while (session_->arrive(true)) {
  }
  expect_captured(kBefore);
}

TEST_F(DeviceArrivals, BeforeTheLastLandingAnErrorEndsIt) {
  add(2 * kBatch, kFirst);
  open();
  give_all();
  EXPECT_TRUE(session_->arrive(true));
  fake_driver::fail_call("cuStreamIsCapturing", 1, 2);
  session_->release_all(Streams{{0, fake_driver::make_stream(0)}});
  EXPECT_EQ(errors().size(), 1U);
  while (session_->arrive(true)) {
  }
  EXPECT_EQ(times_copied_, 0);
  EXPECT_FALSE(is_done_);
}

TEST_F(DeviceArrivals, AfterACancelNobodyIsTold) {
  add(2 * kBatch, kFirst);
  open();
  give_all();
  EXPECT_TRUE(session_->arrive(true));
  session_->cancel();
  EXPECT_EQ(times_copied_, 0);
  EXPECT_FALSE(is_done_);
  EXPECT_TRUE(session_->finished());
}

TEST_F(DeviceArrivals, ContextsAreEnteredByTheBatch) {
  constexpr int kTensors = 64;
  for (int i = 0; i < kTensors; ++i) add(kBlock, kFirst);
  open();
  const Streams training = {{0, fake_driver::make_stream(0)}};
  session_->release_all(training);
  const auto entered = [] { return fake_driver::calls("cuCtxPushCurrent_v2"); };
  const int before = entered();
  session_->enqueue();
  EXPECT_EQ(entered() - before, 2);  // 16 slabs
  EXPECT_EQ(fake_driver::calls("cuMemcpyDtoHAsync_v2"), kTensors);
  while (session_->arrive(true)) {
  }
  expect_captured(kBefore);
}

}  // namespace
}  // namespace deepfreeze

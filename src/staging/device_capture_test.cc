// Capture from devices, on the fake driver: the order of copies and kernels, the holding and giving
// back of devices' resources, and errors.
#include "device/device_capture.h"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/try.h"
#include "staging/device_fixture.h"

namespace deepfreeze {
namespace {

using Streams = std::vector<DeviceStream>;

TEST_F(DeviceCaptureTest, TheCopyComesBehindWhatTheStreamWasGivenBefore) {
  add(CudaDevice::kLanes * kBatchSlabs * kSlab, kFirst);
  add(100, kUnguarded);
  open();
  const Streams training = {{0, fake_driver::make_stream(0)}};
  fake_driver::launch(training[0].stream,
                      [] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); });
  change(training[0].stream, kFirst);
  change(training[0].stream, kUnguarded);
  begin(training);
  expect_captured(kAfter);
}

TEST_F(DeviceCaptureTest, WithoutAStreamItComesBehindTheDefaultOne) {
  add(CudaDevice::kLanes * kBatchSlabs * kSlab, kFirst);
  open();
  const std::uintptr_t blocking = fake_driver::make_stream(0, true);
  fake_driver::launch(blocking, [] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); });
  change(blocking, kFirst);
  begin({});
  expect_captured(kAfter);
}

TEST_F(DeviceCaptureTest, WorkBehindAFenceWaitsForTheCopyAndNobodyElseDoes) {
  fake_driver::hold();
  add(5 * kSlab, kFirst);
  add(5 * kSlab, kSecond);
  open();  // our stream is held
  const Streams training = {{0, fake_driver::make_stream(0)}};
  begin(training);
  session_->fence(kFirst, training);
  change(training[0].stream, kFirst);
  session_->fence(kSecond, training);
  change(training[0].stream, kSecond);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // for one that would not wait
  fake_driver::let_go();
  expect_captured(kBefore);
  fake_driver::synchronize(training[0].stream);
}

// The lane with the group's last batch has one copy, and is long done when the others are not.
TEST_F(DeviceCaptureTest, WorkBehindAFenceWaitsForAllLanes) {
  fake_driver::hold();
  constexpr std::uint64_t kWindow = kBatchSlabs * kSlab;
  constexpr std::uint64_t kSmall = 64;
  for (std::uint64_t i = 0; i < (CudaDevice::kLanes - 1) * kSmall; ++i)
    add(kWindow / kSmall, kFirst);
  add(kWindow, kFirst);
  open();
  const Streams training = {{0, fake_driver::make_stream(0)}};
  begin(training);
  session_->fence(kFirst, training);
  change(training[0].stream, kFirst);
  fake_driver::let_go();
  expect_captured(kBefore);
  fake_driver::synchronize(training[0].stream);
}

TEST_F(DeviceCaptureTest, WaitingForADeviceIsWaitingForAllLanes) {
  add(kSlab, kFirst);
  open();
  const auto device = devices_->get(0);
  ASSERT_TRUE(device);
  const std::vector<std::byte> expected(kSlab, kBefore);
  for (std::size_t lane = 0; lane < CudaDevice::kLanes; ++lane) {
    std::vector<std::byte> arrived(kSlab);
    for (std::uint64_t at = 0; at < kSlab; at += kSlab / 64) {
      ASSERT_TRUE((*device)->copy_to_host(tensors_[0]->bytes().subspan(at, kSlab / 64),
                                          std::span(arrived).subspan(at, kSlab / 64), lane));
    }
    ASSERT_TRUE((*device)->wait());
    EXPECT_EQ(arrived, expected) << "lane " << lane;
  }
}

// The copies can't have begun when the fence returns: so it has not waited.
TEST_F(DeviceCaptureTest, AFenceReturnsBeforeTheCopyHasBegun) {
  fake_driver::hold();
  add(20 * kSlab, kFirst);
  add(kSlab, kUnguarded);
  open();  // our stream is held
  const Streams training = {{0, fake_driver::make_stream(0)}};
  begin(training);
  session_->fence(kFirst, training);
  change(training[0].stream, kFirst);
  change(training[0].stream, kUnguarded);
  EXPECT_FALSE(is_done_);
  fake_driver::let_go();
  expect_captured(kBefore);
  fake_driver::synchronize(training[0].stream);
}

TEST_F(DeviceCaptureTest, WhatNothingGuardsMayBeChangedByWorkBehindTheSave) {
  fake_driver::hold();
  add(3 * kSlab, kUnguarded);
  open();
  const Streams training = {{0, fake_driver::make_stream(0)}};
  begin(training);
  change(training[0].stream, kUnguarded);
  fake_driver::let_go();
  expect_captured(kBefore);
  fake_driver::synchronize(training[0].stream);
}

TEST_F(DeviceCaptureTest, WithoutAStreamTheFenceWaits) {
  add(9 * kSlab, kFirst);
  open();
  begin({});
  session_->fence(kFirst);
  std::ranges::fill(tensors_[0]->bytes(), kAfter);  // by the host: nothing else orders it
  expect_captured(kBefore);
}

TEST_F(DeviceCaptureTest, AStreamOfAnotherDeviceDoesNotCount) {
  add(9 * kSlab, kFirst, 0);
  add(kSlab, kSecond, 1);
  open();
  const Streams other = {{1, fake_driver::make_stream(1)}};
  begin(other);
  session_->fence(kFirst, other);
  std::ranges::fill(tensors_[0]->bytes(), kAfter);
  session_->fence(kSecond, other);
  change(other[0].stream, kSecond);
  expect_captured(kBefore);
  fake_driver::synchronize(other[0].stream);
}

TEST_F(DeviceCaptureTest, AllStreamsThatAreNamedWait) {
  fake_driver::hold();
  add(9 * kSlab, kFirst);
  open();
  fake_driver::let_go();
  const Streams training = {{0, fake_driver::make_stream(0)}, {0, fake_driver::make_stream(0)}};
  fake_driver::launch(training[1].stream, [this] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::ranges::fill(tensors_[0]->bytes(), kAfter);
  });
  begin(training);
  session_->fence(kFirst, training);
  fake_driver::launch(training[1].stream,
                      [this] { std::ranges::fill(tensors_[0]->bytes(), kBefore); });
  expect_captured(kAfter);
  fake_driver::synchronize(training[1].stream);
}

TEST_F(DeviceCaptureTest, AFenceOfWhatIsNotReleasedReturns) {
  add(kSlab, kFirst);
  add(kSlab, kSecond);
  open();
  session_->release(kFirst);
  session_->fence(kSecond);
  EXPECT_FALSE(session_->finished());
}

TEST_F(DeviceCaptureTest, GroupsAreCapturedAsTheyAreReleased) {
  add(6 * kSlab, kFirst);
  add(6 * kSlab, kSecond);
  open();
  const Streams training = {{0, fake_driver::make_stream(0)}};
  DeviceCopier copier;
  for (const std::uint32_t guard : {kSecond, kFirst}) {
    change(training[0].stream, guard);
    session_->release(guard, training);
    copier.serve(*session_);
  }
  begin(training);
  expect_captured(kAfter);
}

TEST_F(DeviceCaptureTest, ARingTakesNoMoreThanItHasRoomFor) {
  frees_slabs_ = false;
  add(10 * kSlab, kFirst);
  open(2);
  const Streams training = {{0, fake_driver::make_stream(0)}};
  begin(training);
  while (taken_slabs_ < 2) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(session_->times().copied_bytes, 2 * kSlab);
  frees_slabs_ = true;
  session_->free_slab(0);
  session_->free_slab(1);
  session_->fence(kFirst, training);
  change(training[0].stream, kFirst);
  expect_captured(kBefore);
  fake_driver::synchronize(training[0].stream);
}

TEST_F(DeviceCaptureTest, ARingThatIsCancelledLetsEveryoneGo) {
  frees_slabs_ = false;
  add(10 * kSlab, kFirst);
  open(2);
  begin({});
  std::jthread fence([this] { session_->fence(kFirst); });
  session_->cancel();
  EXPECT_TRUE(session_->finished());
  EXPECT_FALSE(is_done_);
}

TEST_F(DeviceCaptureTest, HostAndDeviceShareSlabs) {
  add(kBlock / 2, kFirst);
  add(3 * kSlab, kSecond);
  add(100, kUnguarded);
  add(kBlock, kFirst);
  items_[1].device = items_[2].device = kHostMemory;
  open();
  begin({});
  expect_captured(kBefore);
}

TEST_F(DeviceCaptureTest, CancellingWaitsForWhatIsUnderWay) {
  add(40 * kSlab, kFirst);
  open();
  begin({});
  session_->cancel();
  EXPECT_TRUE(session_->finished());
  tensors_.clear();  // a violation, were one of them still being copied
}

// The canceller itself takes the batches under way.
TEST_F(DeviceCaptureTest, CancellingNeedsNobodyElse) {
  add(4 * kSlab, kFirst);
  open();
  session_->release_all({});
  session_->enqueue();
  session_->cancel();
  EXPECT_TRUE(session_->finished());
}

// Our calls must not end the graph, and its own work must not wait for work outside of it.
class InAGraph : public DeviceCaptureTest, public testing::WithParamInterface<int> {};

TEST_P(InAGraph, AFenceWaitsItselfAndLeavesTheGraphAlone) {
  add(9 * kSlab, kFirst);
  open();
  const Streams training = {{0, fake_driver::make_stream(0)}};
  begin(training);
  fake_driver::begin_graph(training[0].stream, GetParam());
  session_->fence(kFirst, training);
  std::ranges::fill(tensors_[0]->bytes(), kAfter);
  fake_driver::end_graph(training[0].stream);
  expect_captured(kBefore);
}

TEST_P(InAGraph, ASaveIsRefused) {
  add(9 * kSlab, kFirst);
  open();
  const Streams training = {{0, fake_driver::make_stream(0)}};
  fake_driver::begin_graph(training[0].stream, GetParam());
  begin(training);
  session_->wait();
  fake_driver::end_graph(training[0].stream);
  ASSERT_EQ(errors().size(), 1U);
  EXPECT_EQ(errors()[0].code(), ErrorCode::kUnsupported);
  EXPECT_NE(errors()[0].message().find("graph"), std::string::npos);
  EXPECT_FALSE(is_done_);
}

// The engine's calls before it asks the stream, and those after a disk has failed: it pins, gives
// back and waits on any thread.
TEST_P(InAGraph, PinningAndWaitingAreNoConcernOfIts) {
  const std::uintptr_t training = fake_driver::make_stream(0);
  add(40 * kSlab, kFirst);
  open();
  begin({});
  fake_driver::begin_graph(training, GetParam());
  std::vector<std::byte> memory(kSlab);
  auto pinned = devices_->get(0).value()->pin(memory);
  ASSERT_TRUE(pinned) << pinned.error().message();
  EXPECT_TRUE(pinned->unpin());
  EXPECT_TRUE(devices_->get(0).value()->wait_for(0));
  session_->cancel();
  EXPECT_TRUE(session_->finished());
  fake_driver::end_graph(training);
}

INSTANTIATE_TEST_SUITE_P(Modes, InAGraph, testing::Values(0, 1, 2));

TEST_F(DeviceCaptureTest, WhatAGraphForbidsIsNotSupported) {
  CudaDevices devices;
  const auto device = devices.get(0);
  fake_driver::fail_call("cuStreamIsCapturing", 1, 906);
  const Status followed = (*device)->follow(0);
  ASSERT_FALSE(followed);
  EXPECT_EQ(followed.error().code(), ErrorCode::kUnsupported);
}

// Its streams have the names of this one's.
TEST_F(DeviceCaptureTest, WithoutItsOwnContextNothingIsDoneInAnother) {
  CudaDevices devices;
  const auto other = devices.get(1);
  const auto device = devices.get(0);
  fake_driver::enter_context(1);
  for (const auto& call : std::vector<std::function<Status()>>{
           [&] { return (*device)->follow(0); }, [&] { return (*device)->wait_for(0); },
           [&]() -> Status {
             DF_TRY(const CudaEvent copied, (*device)->copy_to_host({}, 0));
             return {};
           }}) {
    fake_driver::fail_call("cuCtxPushCurrent_v2", 1, 999);
    const Status done = call();
    ASSERT_FALSE(done);
    EXPECT_NE(done.error().message().find("use the device"), std::string::npos);
  }
  fake_driver::leave_context();
}

TEST_F(DeviceCaptureTest, MemoryThatCantBeGivenBackStaysPinned) {
  std::vector<std::byte> memory(kSlab);
  CudaDevices devices;
  auto pinned = devices.get(0).value()->pin(memory);
  ASSERT_TRUE(pinned);
  fake_driver::fail_call("cuMemHostUnregister", 1, 999);
  EXPECT_FALSE(pinned->unpin());
  EXPECT_EQ(pinned->bytes().size(), kSlab);
  EXPECT_TRUE(pinned->unpin());
}

TEST_F(DeviceCaptureTest, ParanoidFindsAWriterThatNothingOrders) {
  add(9 * kSlab, kFirst);
  open(0, true);
  session_->release(kFirst);
  std::ranges::fill(tensors_[0]->bytes().last(1), kAfter);
  begin({});
  session_->wait();
  EXPECT_EQ(session_->torn_items(), std::vector<std::size_t>{0});
}

TEST_F(DeviceCaptureTest, ParanoidFindsNothingWhereNothingChanges) {
  add(3 * kSlab, kFirst, 1);
  add(77, kSecond, 0);
  open(0, true);
  begin({});
  expect_captured(kBefore);
  EXPECT_TRUE(session_->torn_items().empty());
}

// Whichever call fails, the capture ends, says so once, and nothing is left or still under way.
class FailedCall : public DeviceCaptureTest, public testing::WithParamInterface<const char*> {};

TEST_P(FailedCall, EndsTheCapture) {
  for (int nth = 1; nth <= 12; ++nth) {
    SCOPED_TRACE("call " + std::to_string(nth));
    start_anew();
    for (int i = 0; i < 3; ++i) add(5 * kSlab, i == 2 ? kUnguarded : kFirst);
    open();
    const Streams training = {{0, fake_driver::make_stream(0)}};
    fake_driver::fail_call(GetParam(), nth, 2);
    begin(training);
    session_->fence(kFirst, training);
    session_->wait();
    const bool has_failed = !errors().empty();
    EXPECT_NE(is_done_, has_failed);
    if (has_failed) {
      EXPECT_NE(errors()[0].message().find("out of memory"), std::string::npos);
    } else {
      expect_taken(kBefore);
    }
    fake_driver::synchronize(training[0].stream);
  }
}

INSTANTIATE_TEST_SUITE_P(Calls, FailedCall,
                         testing::Values("cuMemcpyDtoHAsync_v2", "cuEventCreate", "cuEventRecord",
                                         "cuEventSynchronize", "cuStreamWaitEvent",
                                         "cuStreamIsCapturing"));

TEST_F(DeviceCaptureTest, ADeviceThatDiesEndsTheCapture) {
  add(40 * kSlab, kFirst);
  open();
  fake_driver::hold();  // else all may have landed by then, and nothing would be left to fail
  begin({});
  fake_driver::die(700);
  session_->fence(kFirst);
  session_->wait();
  EXPECT_FALSE(is_done_);
  ASSERT_EQ(errors().size(), 1U);
  EXPECT_NE(errors()[0].message().find("CUDA error 700"), std::string::npos);
  expects_nothing_left_ = false;
}

TEST_F(DeviceCaptureTest, WithoutPinnedMemoryItIsRightAllTheSame) {
  fake_driver::limit_pinned_bytes(0);
  add(9 * kSlab, kFirst);
  open();
  const Streams training = {{0, fake_driver::make_stream(0)}};
  change(training[0].stream, kFirst);
  begin(training);
  session_->wait();
  EXPECT_TRUE(is_done_);
  expect_taken(kAfter);
  EXPECT_GT(fake_driver::unpinned_copies(), 0);
}

TEST_F(DeviceCaptureTest, ADeviceThatCantBeOpenedLeavesNothingBehind) {
  for (const char* name : {"cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuCtxPushCurrent_v2",
                           "cuCtxGetStreamPriorityRange", "cuStreamCreateWithPriority"}) {
    SCOPED_TRACE(name);
    CudaDevices devices;
    fake_driver::fail_call(name, 1, 2);
    const auto opened = devices.get(0);
    ASSERT_FALSE(opened);
    EXPECT_EQ(opened.error().code(), ErrorCode::kNoSpace);
    EXPECT_EQ(fake_driver::left().streams, 0);
    EXPECT_TRUE(devices.get(0));  // and the next try is another
  }
}

TEST_F(DeviceCaptureTest, NorWhereItsLastStreamCantBeMade) {
  for (std::size_t call = 2; call <= CudaDevice::kLanes; ++call) {
    CudaDevices devices;
    fake_driver::fail_call("cuStreamCreateWithPriority", static_cast<int>(call), 2);
    EXPECT_FALSE(devices.get(0)) << "at call " << call;
    EXPECT_EQ(fake_driver::left().streams, 0);
    EXPECT_TRUE(devices.get(0));
  }
}

TEST_F(DeviceCaptureTest, ADeviceThatIsNotThereIsNamed) {
  CudaDevices devices;
  const auto opened = devices.get(7);
  ASSERT_FALSE(opened);
  EXPECT_NE(opened.error().message().find("CUDA device 7"), std::string::npos);
}

}  // namespace
}  // namespace deepfreeze

// Saves and restores of tensors on devices, on the fake driver.
#include <gtest/gtest.h>
#include <sys/syscall.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/log.h"
#include "deepfreeze/deepfreeze.h"
#include "support/code_of.h"
#include "support/deny_syscall.h"
#include "support/fake_device.h"
#include "support/refuse_memory.h"
#include "support/scoped_dir.h"
#include "support/thread_ranks.h"

namespace deepfreeze {
namespace {

using std::chrono::milliseconds;
using Streams = std::vector<DeviceStream>;

constexpr milliseconds kDeadline{60'000};
constexpr std::uint32_t kWeights = 1;
constexpr std::size_t kMiB = 1024 * 1024;

// Guarded weights on each device, a buffer that nothing guards, and a counter in host memory.
class Model {
 public:
  explicit Model(std::vector<std::int32_t> devices, std::size_t bytes = 3 * kMiB)
      : devices_(std::move(devices)) {
    for (std::size_t i = 0; i < devices_.size(); ++i) {
      weights_.push_back(std::make_unique<DeviceMemory>(bytes + 64 * i));
    }
    fill(0);
  }

  void fill(std::uint8_t step) {
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      fill(weights_[i]->bytes(), static_cast<std::uint8_t>(step + i));
    }
    fill(buffer_.bytes(), step);
    counter_ = step;
  }
  // The work of a training step.
  void launch(const Streams& streams, std::uint8_t step) {
    for (std::size_t i = 0; i < devices_.size(); ++i) {
      const auto value = static_cast<std::uint8_t>(step + i);
      fake_driver::launch(streams[i].stream,
                          [this, i, value] { fill(weights_[i]->bytes(), value); });
    }
    launch_buffer(streams, step);
    counter_ = step;
  }
  void launch_buffer(const Streams& streams, std::uint8_t step) {
    fake_driver::launch(streams[0].stream, [this, step] { fill(buffer_.bytes(), step); });
  }

  [[nodiscard]] TensorTable table() {
    TensorTable table;
    for (std::size_t i = 0; i < devices_.size(); ++i) {
      table.push_back(tensor(name(i), weights_[i]->bytes(), kWeights, devices_[i]));
    }
    table.push_back(tensor("buffer", buffer_.bytes(), 0, devices_[0]));
    table.push_back(tensor("counter", std::as_bytes(std::span(&counter_, 1)), 0, kHostMemory));
    return table;
  }
  [[nodiscard]] std::vector<RestoreTarget> targets(const Streams& streams) {
    std::vector<RestoreTarget> targets;
    for (std::size_t i = 0; i < devices_.size(); ++i) {
      targets.push_back({.key = name(i),
                         .into = weights_[i]->bytes(),
                         .device = devices_[i],
                         .stream = streams[i].stream});
    }
    targets.push_back({.key = "buffer",
                       .into = buffer_.bytes(),
                       .device = devices_[0],
                       .stream = streams[0].stream});
    targets.push_back({.key = "counter", .into = std::as_writable_bytes(std::span(&counter_, 1))});
    return targets;
  }

  void expect_is(std::uint8_t step) {
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      expect_all(weights_[i]->bytes(), static_cast<std::uint8_t>(step + i));
    }
    expect_all(buffer_.bytes(), step);
    EXPECT_EQ(counter_, step);
  }

 private:
  static std::string name(std::size_t i) { return "weights" + std::to_string(i); }
  static void fill(std::span<std::byte> bytes, std::uint8_t value) {
    std::memset(bytes.data(), value, bytes.size());
  }
  // By the library's functions: a loop of ours is not optimized, and this is most of the time.
  static void expect_all(std::span<const std::byte> bytes, std::uint8_t value) {
    ASSERT_FALSE(bytes.empty());
    EXPECT_EQ(bytes[0], std::byte{value});
    EXPECT_EQ(std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1), 0);
  }
  static Tensor tensor(std::string key, std::span<const std::byte> bytes, std::uint32_t guard,
                       std::int32_t device) {
    return {.spec = {.key = std::move(key), .dtype = DType::kU8, .shape = {bytes.size()}},
            .data = bytes,
            .guard = guard,
            .device = device};
  }

  const std::vector<std::int32_t> devices_;
  std::vector<std::unique_ptr<DeviceMemory>> weights_;
  DeviceMemory buffer_{5000};
  std::uint8_t counter_ = 0;
};

class DeviceEngine : public FakeDeviceTest {
 protected:
  DeviceEngine() {
    set_log_sink([](std::string_view) {});
  }
  ~DeviceEngine() override { set_log_sink({}); }

  Checkpointer open(Options options = {}) {
    auto opened = Checkpointer::open(dir_.path() / "run", std::move(options));
    EXPECT_TRUE(opened) << opened.error().message();
    return std::move(*opened);
  }
  static SaveHandle save(Checkpointer& run, std::uint64_t step, Model& model,
                         const Streams& streams) {
    auto saved = run.save({.step = step, .tensors = model.table(), .streams = streams});
    EXPECT_TRUE(saved && *saved);
    return **saved;
  }
  // Training of some steps, each saved, on streams that are always behind.
  void train(Checkpointer& run, Model& model, const Streams& streams, std::uint8_t steps) {
    for (std::uint8_t step = 1; step <= steps; ++step) {
      run.fence(kWeights, streams);
      model.launch(streams, step);
      handles_.push_back(save(run, step, model, streams));
    }
    run.fence(streams);
    model.launch(streams, 99);
    for (const SaveHandle& handle : handles_) {
      const Status durable = handle.wait(Level::kDurable, kDeadline);
      EXPECT_TRUE(durable) << durable.error().message();
    }
    handles_.clear();
    for (const DeviceStream& each : streams) fake_driver::synchronize(each.stream);
  }
  void expect_restores(std::uint8_t steps, const std::vector<std::int32_t>& devices,
                       const Streams& streams, std::size_t bytes = 3 * kMiB) {
    const auto listed = list_checkpoints(dir_.path() / "run");
    ASSERT_TRUE(listed);
    ASSERT_EQ(listed->size(), steps);
    for (const CheckpointInfo& info : *listed) {
      Model restored(devices, bytes);
      restored.launch(streams, 55);  // not done yet when the restore begins
      const auto opened = open_checkpoint(info);
      ASSERT_TRUE(opened);
      const Status read = opened->read(restored.targets(streams));
      ASSERT_TRUE(read) << read.error().message();
      restored.expect_is(static_cast<std::uint8_t>(info.step));
    }
  }

  ScopedDir dir_;
  std::vector<SaveHandle> handles_;
};

TEST_F(DeviceEngine, EachSaveHoldsWhatTheStreamsHadBeenGiven) {
  const Streams streams = {{0, fake_driver::make_stream(0)}, {1, fake_driver::make_stream(1)}};
  {
    Model model({0, 1});
    Checkpointer run = open();
    train(run, model, streams, 5);
    EXPECT_EQ(fake_driver::unpinned_copies(), 0);
    EXPECT_EQ(fake_driver::left().registrations, 1);  // of the arena, once
  }
  expect_restores(5, {0, 1}, streams);
}

TEST_F(DeviceEngine, AStateLargerThanTheArenaStreamsThroughIt) {
  const Streams streams = {{0, fake_driver::make_stream(0)}};
  {
    Model model({0}, 30 * kMiB);
    Checkpointer run = open({.arena_bytes_max = 8 * kMiB});
    train(run, model, streams, 3);
    EXPECT_EQ(fake_driver::unpinned_copies(), 0);
    EXPECT_EQ(fake_driver::left().registrations, 2);  // and of the parking memory
  }
  expect_restores(3, {0}, streams, 30 * kMiB);
}

TEST_F(DeviceEngine, ARingWithoutAnyGuardIsFilledAsWell) {
  const Streams streams = {{0, fake_driver::make_stream(0)}};
  Model model({0}, 30 * kMiB);
  Checkpointer run = open({.arena_bytes_max = 8 * kMiB});
  model.launch(streams, 1);
  TensorTable table = model.table();
  for (Tensor& tensor : table) tensor.guard = 0;
  const auto saved = run.save({.step = 1, .tensors = table, .streams = streams});
  model.launch(streams, 2);
  EXPECT_TRUE((*saved)->wait(Level::kDurable, kDeadline));
  expect_restores(1, {0}, streams, 30 * kMiB);
}

TEST_F(DeviceEngine, AGrowingStateIsPinnedAnew) {
  const Streams streams = {{0, fake_driver::make_stream(0)}};
  Checkpointer run = open();
  for (const std::size_t bytes : {kMiB, 20 * kMiB}) {
    Model model({0}, bytes);
    EXPECT_TRUE(save(run, bytes, model, streams).wait(Level::kDurable, kDeadline));
    EXPECT_EQ(fake_driver::left().registrations, 1);
  }
  EXPECT_EQ(fake_driver::unpinned_copies(), 0);
}

// The driver would mistake new memory at these addresses for the old.
TEST_F(DeviceEngine, MemoryThatStaysPinnedIsNotReplaced) {
  const Streams streams = {{0, fake_driver::make_stream(0)}};
  Checkpointer run = open();
  Model small({0}, kMiB);
  Model model({0}, 20 * kMiB);
  EXPECT_TRUE(save(run, 1, small, streams).wait(Level::kDurable, kDeadline));
  fake_driver::fail_call("cuMemHostUnregister", 1, 999);
  const Status failed = save(run, 2, model, streams).wait(Level::kDurable, kDeadline);
  ASSERT_FALSE(failed);
  EXPECT_NE(failed.error().message().find("give pinned memory back"), std::string::npos);
  EXPECT_TRUE(save(run, 3, model, streams).wait(Level::kDurable, kDeadline));
  EXPECT_EQ(fake_driver::left().registrations, 1);
  EXPECT_EQ(fake_driver::unpinned_copies(), 0);
}

TEST_F(DeviceEngine, WhatIsParkedMayGrow) {
  const Streams streams = {{0, fake_driver::make_stream(0)}};
  Checkpointer run = open({.arena_bytes_max = 8 * kMiB});
  for (const std::size_t bytes : {kMiB, 7 * kMiB}) {
    Model model({0}, 20 * kMiB);
    DeviceMemory more(bytes);
    TensorTable table = model.table();
    table.push_back({.spec = {.key = "more", .dtype = DType::kU8, .shape = {bytes}},
                     .data = more.bytes(),
                     .device = 0});
    const auto saved = run.save({.step = bytes, .tensors = table, .streams = streams});
    EXPECT_TRUE((*saved)->wait(Level::kDurable, kDeadline));
    EXPECT_EQ(fake_driver::left().registrations, 2);
  }
  EXPECT_EQ(fake_driver::unpinned_copies(), 0);
}

// The copies can't have begun when the work is given, which is done long before they end.
TEST_F(DeviceEngine, WorkBehindASaveWaitsForWhatNothingGuards) {
  const Streams streams = {{0, fake_driver::make_stream(0)}};
  Model model({0});
  Checkpointer run = open();
  ASSERT_TRUE(run.prewarm({.tensors = model.table(), .streams = streams}));
  model.launch(streams, 1);
  fake_driver::hold();
  const SaveHandle handle = save(run, 1, model, streams);
  model.launch_buffer(streams, 2);
  std::this_thread::sleep_for(milliseconds(50));
  fake_driver::let_go();
  EXPECT_TRUE(handle.wait(Level::kDurable, kDeadline));
  fake_driver::synchronize(streams[0].stream);
  expect_restores(1, {0}, streams);
}

TEST_F(DeviceEngine, PrewarmPinsAndReadsNothing) {
  const Streams streams = {{0, fake_driver::make_stream(0)}};
  Model model({0});
  Checkpointer run = open();
  EXPECT_TRUE(run.prewarm({.tensors = model.table(), .streams = streams}));
  EXPECT_EQ(fake_driver::left().registrations, 1);
  EXPECT_EQ(fake_driver::calls("cuMemcpyDtoHAsync_v2"), 0);
  EXPECT_TRUE(save(run, 1, model, streams).wait(Level::kDurable, kDeadline));
  EXPECT_EQ(fake_driver::calls("cuMemHostRegister_v2"), 1);
  EXPECT_TRUE(run.close());
  EXPECT_TRUE(fake_driver::left() == fake_driver::Left());
}

TEST_F(DeviceEngine, MemoryForASaveThatIsExpectedIsPinned) {
  const Streams streams = {{0, fake_driver::make_stream(0)}};
  Model model({0});
  Checkpointer run = open();
  run.expect(1 << 20, std::vector<std::int32_t>{0});
  const auto deadline = std::chrono::steady_clock::now() + kDeadline;
  while (fake_driver::left().registrations == 0 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_EQ(fake_driver::left().registrations, 1);
  EXPECT_TRUE(save(run, 1, model, streams).wait(Level::kDurable, kDeadline));
  EXPECT_EQ(fake_driver::calls("cuMemHostRegister_v2"), 1);
  EXPECT_TRUE(run.close());
  EXPECT_TRUE(fake_driver::left() == fake_driver::Left());
}

TEST_F(DeviceEngine, PinningThatIsRefusedIsSaidOnce) {
  std::vector<std::string> said;
  set_log_sink([&](std::string_view line) { said.emplace_back(line); });
  fake_driver::limit_pinned_bytes(0);
  const Streams streams = {{0, fake_driver::make_stream(0)}};
  {
    Model model({0});
    Checkpointer run = open();
    train(run, model, streams, 3);
  }
  const auto is_of_pinning = [](const std::string& line) {
    return line.find("copies from the device are slower") != std::string::npos;
  };
  EXPECT_EQ(std::ranges::count_if(said, is_of_pinning), 1);
  expect_restores(3, {0}, streams);
}

TEST_F(DeviceEngine, AGroupIsCapturedBehindItsUpdate) {
  const Streams streams = {{0, fake_driver::make_stream(0)}};
  {
    Model model({0});
    Checkpointer run = open();
    EXPECT_TRUE(save(run, 1, model, streams).wait(Level::kDurable, kDeadline));
    const auto begun = run.begin_capture(model.table());
    ASSERT_TRUE(begun && *begun);
    model.launch(streams, 2);
    run.release(kWeights, streams);
    const SaveHandle handle = save(run, 2, model, streams);
    EXPECT_TRUE(handle.status().early);
    run.fence(kWeights, streams);
    model.launch(streams, 3);
    EXPECT_TRUE(handle.wait(Level::kDurable, kDeadline));
    fake_driver::synchronize(streams[0].stream);
  }
  Model restored({0});
  Checkpointer run = open();
  ASSERT_TRUE(restore_newest(run, restored.targets(streams)));
  restored.expect_is(2);
}

// A fence has stood for them since, and nothing saw whether they changed.
TEST_F(DeviceEngine, WhatWasFencedAfterItsReleaseIsCapturedAnew) {
  const Streams streams = {{0, fake_driver::make_stream(0)}};
  Model model({0});
  Checkpointer run = open();
  model.launch(streams, 1);
  const auto begun = run.begin_capture(model.table());
  ASSERT_TRUE(begun && *begun);
  run.release(kWeights, streams);
  run.fence(kWeights, streams);
  model.launch(streams, 2);
  const SaveHandle handle = save(run, 2, model, streams);
  EXPECT_FALSE(handle.status().early);
  EXPECT_TRUE(handle.wait(Level::kDurable, kDeadline));
  Model restored({0});
  ASSERT_TRUE(restore_newest(run, restored.targets(streams)));
  restored.expect_is(2);
}

// Nothing is left to capture when the save comes: whatever the two hold of each other must go.
TEST_F(DeviceEngine, AnEarlyCaptureThatIsDoneBeforeItsSaveIsLetGo) {
  const Streams streams = {{0, fake_driver::make_stream(0)}};
  {
    Model model({0});
    TensorTable table = model.table();
    table.resize(1);
    Checkpointer run = open();
    const auto begun = run.begin_capture(table);
    ASSERT_TRUE(begun && *begun);
    run.release(kWeights, streams);
    fake_driver::synchronize_all();
    std::this_thread::sleep_for(milliseconds(50));  // so that the arrived bytes are checksummed
    const auto handle = run.save({.step = 1, .tensors = table, .streams = streams});
    ASSERT_TRUE(handle && *handle);
    EXPECT_TRUE((*handle)->status().early);
    EXPECT_TRUE((*handle)->wait(Level::kDurable, kDeadline));
  }
  EXPECT_TRUE(fake_driver::left() == fake_driver::Left());
}

// The first of all, which takes and pins memory.
TEST_F(DeviceEngine, ASaveInAGraphIsRefusedAndLeavesItAlone) {
  const Streams streams = {{0, fake_driver::make_stream(0)}};
  Model model({0});
  Checkpointer run = open();
  fake_driver::begin_graph(streams[0].stream, 0);
  const SaveHandle refused = save(run, 1, model, streams);
  const Status durable = refused.wait(Level::kDurable, kDeadline);
  fake_driver::end_graph(streams[0].stream);
  EXPECT_EQ(code_of(durable), ErrorCode::kUnsupported);
  EXPECT_TRUE(save(run, 2, model, streams).wait(Level::kDurable, kDeadline));
  EXPECT_EQ(fake_driver::unpinned_copies(), 0);
}

TEST_F(DeviceEngine, AFailureForWhichThereIsNoMemoryIsOneAllTheSame) {
  const Streams streams = {{0, fake_driver::make_stream(0)}};
  Model model({0});
  Checkpointer run = open();
  EXPECT_TRUE(save(run, 1, model, streams).wait(Level::kDurable, kDeadline));
  std::uint64_t step = 1;
  bool has_refused = true;
  for (int granted = 0; has_refused && !HasFailure(); ++granted) {  // and all after these refused
    SCOPED_TRACE(granted);
    std::atomic<int> allocations = 0;
    {
      const MemoryRefusal refusal(thread_named("df-device"),
                                  [&] { return ++allocations > granted; });
      fake_driver::fail_call("cuMemcpyDtoHAsync_v2", 2, 999);  // the first is the caller's
      const SaveHandle failing = save(run, ++step, model, streams);
      run.fence(kWeights, streams);
      const Status durable = failing.wait(Level::kDurable, kDeadline);
      ASSERT_FALSE(durable);
      has_refused = durable.error().message().find("out of memory") != std::string::npos;
      EXPECT_TRUE(has_refused || durable.error().message().find("999") != std::string::npos);
    }
    EXPECT_TRUE(save(run, ++step, model, streams).wait(Level::kDurable, kDeadline));
    EXPECT_TRUE(has_refused || granted > 0);
  }
}

TEST_F(DeviceEngine, WithoutThreadsForItASaveFailsAndTheNextTriesAgain) {
  const Streams streams = {{0, fake_driver::make_stream(0)}};
  Model model({0}, 30 * kMiB);
  Checkpointer run = open({.arena_bytes_max = 8 * kMiB});
  const bool can_deny = run_with_denied({.number = SYS_clone3, .os_errno = EAGAIN}, [&] {
    const SaveHandle failing = save(run, 1, model, streams);
    const Status durable = failing.wait(Level::kDurable, kDeadline);
    ASSERT_FALSE(durable);
    EXPECT_NE(durable.error().message().find("can't be started"), std::string::npos);
  });
  if (!can_deny) GTEST_SKIP() << "LEFT OUT: no seccomp filter is allowed here";
  EXPECT_TRUE(save(run, 2, model, streams).wait(Level::kDurable, kDeadline));
}

TEST_F(DeviceEngine, ACaptureThatIsGivenUpLeavesNothingBehind) {
  const Streams streams = {{0, fake_driver::make_stream(0)}};
  Model model({0}, 20 * kMiB);
  Checkpointer run = open();
  const auto begun = run.begin_capture(model.table());
  ASSERT_TRUE(begun && *begun);
  run.release(kWeights, streams);
  run.discard_capture();
  EXPECT_TRUE(save(run, 1, model, streams).wait(Level::kDurable, kDeadline));
}

TEST_F(DeviceEngine, ADeviceThatIsNotThereIsSaidAndHostMemoryGoesOn) {
  Model model({5});
  Checkpointer run = open();
  const auto saved = run.save({.step = 1, .tensors = model.table()});
  ASSERT_TRUE(saved && *saved);
  const Status durable = (*saved)->wait(Level::kDurable, kDeadline);
  ASSERT_FALSE(durable);
  EXPECT_NE(durable.error().message().find("CUDA device 5"), std::string::npos);
  TensorTable host = {model.table().back()};
  const auto next = run.save({.step = 2, .tensors = host});
  EXPECT_TRUE((*next)->wait(Level::kDurable, kDeadline));
}

// Each n-th call of each function fails: the save says so or is whole, nothing hangs, the step
// before stays, and the next save works.
class FailingDevice : public DeviceEngine, public testing::WithParamInterface<const char*> {};

TEST_P(FailingDevice, LosesNoStep) {
  const Streams streams = {{0, fake_driver::make_stream(0)}};
  // Without a context nothing can be given back, either.
  expects_nothing_left_ = GetParam() != std::string("cuCtxPushCurrent_v2");
  for (int nth = 1; nth <= 8; ++nth) {
    SCOPED_TRACE("call " + std::to_string(nth));
    Model model({0}, kMiB);
    Checkpointer run = open();
    const auto step = static_cast<std::uint64_t>(3 * nth);
    model.fill(1);
    EXPECT_TRUE(save(run, step, model, streams).wait(Level::kDurable, kDeadline));
    fake_driver::fail_call(GetParam(), nth, 999);
    const auto failing = run.save({.step = step + 1, .tensors = model.table(), .streams = streams});
    run.fence(kWeights, streams);
    if (failing && *failing) std::ignore = (*failing)->wait(Level::kDurable, kDeadline);
    fake_driver::fail_call(GetParam(), 1'000'000, 0);  // no more
    EXPECT_TRUE(save(run, step + 2, model, streams).wait(Level::kDurable, kDeadline));
    EXPECT_TRUE(run.close());
    const auto listed = list_checkpoints(dir_.path() / "run");
    for (const std::uint64_t kept : {step, step + 2}) {
      EXPECT_NE(std::ranges::find(*listed, kept, &CheckpointInfo::step), listed->end()) << kept;
    }
    for (const CheckpointInfo& info : *listed) {
      Model restored({0}, kMiB);
      ASSERT_TRUE(open_checkpoint(info)->read(restored.targets(streams)));
      restored.expect_is(1);
    }
  }
  fake_driver::synchronize(streams[0].stream);
}

INSTANTIATE_TEST_SUITE_P(Calls, FailingDevice,
                         testing::Values("cuCtxPushCurrent_v2", "cuMemcpyDtoHAsync_v2",
                                         "cuEventCreate", "cuEventRecord", "cuEventSynchronize",
                                         "cuStreamWaitEvent", "cuStreamIsCapturing"));

TEST_F(DeviceEngine, ARestoreThatTheDeviceRefusesIsAnError) {
  const Streams streams = {{0, fake_driver::make_stream(0)}};
  Model model({0});
  Checkpointer run = open();
  EXPECT_TRUE(save(run, 1, model, streams).wait(Level::kDurable, kDeadline));
  const auto opened = open_checkpoint(list_checkpoints(dir_.path() / "run")->front());
  for (const int nth : {1, 2}) {
    fake_driver::fail_call("cuMemcpyHtoDAsync_v2", nth, 999);
    const Status read = opened->read(model.targets(streams));
    ASSERT_FALSE(read);
    EXPECT_NE(read.error().message().find("CUDA error 999"), std::string::npos);
  }
  EXPECT_TRUE(opened->read(model.targets(streams)));
}

TEST_F(DeviceEngine, ADeviceThatDiesFailsTheSaveAndLeavesTheStepBefore) {
  const Streams streams = {{0, fake_driver::make_stream(0)}};
  expects_nothing_left_ = false;
  Model model({0}, 30 * kMiB);
  Checkpointer run = open();
  EXPECT_TRUE(save(run, 1, model, streams).wait(Level::kDurable, kDeadline));
  const SaveHandle dying = save(run, 2, model, streams);
  fake_driver::die(700);
  run.fence(kWeights, streams);
  const Status durable = dying.wait(Level::kDurable, kDeadline);
  ASSERT_FALSE(durable);
  EXPECT_NE(durable.error().message().find("CUDA error 700"), std::string::npos);
  EXPECT_FALSE(dying.wait(Level::kCaptured, kDeadline));
  const auto listed = list_checkpoints(dir_.path() / "run");
  ASSERT_EQ(listed->size(), 1U);
  EXPECT_TRUE(verify_checkpoint(listed->front())->empty());
}

TEST_F(DeviceEngine, ReplicasOnDevicesAreCompared) {
  ThreadRanks(2).run([this](std::uint32_t rank, const std::shared_ptr<RankGroup>& group) {
    const auto device = static_cast<std::int32_t>(rank);
    const Streams streams = {{device, fake_driver::make_stream(device)}};
    Model model({device});
    Options options;
    options.ranks = group;
    auto run = Checkpointer::open(dir_.path() / "run", options);
    ASSERT_TRUE(run);
    model.launch(streams, 1);
    EXPECT_TRUE(save(*run, 1, model, streams).wait(Level::kDurable, kDeadline));
    model.launch(streams, static_cast<std::uint8_t>(2 + rank));
    Model other({device}, 2 * kMiB);  // new tensors: compared at once
    fake_driver::launch(streams[0].stream, [] { std::this_thread::sleep_for(milliseconds(50)); });
    other.launch(streams, static_cast<std::uint8_t>(2 + rank));
    const auto refused = run->save({.step = 2, .tensors = other.table(), .streams = streams});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), ErrorCode::kMismatch);
  });
}

}  // namespace
}  // namespace deepfreeze

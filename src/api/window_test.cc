// Capture beside the caller: guards, fences, confirmation, rings, early capture.
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <numeric>
#include <random>
#include <sstream>
#include <thread>

#include "base/fail_point.h"
#include "base/log.h"
#include "deepfreeze/deepfreeze.h"
#include "save/save_handle.h"
#include "support/code_of.h"
#include "support/deny_syscall.h"
#include "support/scoped_dir.h"

namespace deepfreeze::window_test {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kDeadline{60'000};  // for waits that must not hang, not a verdict on speed
constexpr std::uint32_t kFirst = 1;
constexpr std::uint32_t kSecond = 2;

// Two guarded tensors and one that nothing guards; every byte follows from the step.
struct Model {
  explicit Model(std::size_t elements = 400'000) : first(elements), second(elements), plain(999) {}

  void fill(std::uint64_t step) {
    std::iota(first.begin(), first.end(), static_cast<std::uint32_t>(step << 20U));
    std::iota(second.begin(), second.end(), static_cast<std::uint32_t>(step << 21U));
    std::ranges::fill(plain, static_cast<std::uint32_t>(step));
  }
  [[nodiscard]] TensorTable table() const {
    return {tensor("first", first, kFirst), tensor("second", second, kSecond),
            tensor("plain", plain, 0)};
  }
  [[nodiscard]] std::vector<RestoreTarget> targets() {
    return {{"first", std::as_writable_bytes(std::span(first))},
            {"second", std::as_writable_bytes(std::span(second))},
            {"plain", std::as_writable_bytes(std::span(plain))}};
  }
  bool operator==(const Model&) const = default;

  static Tensor tensor(const std::string& key, const std::vector<std::uint32_t>& values,
                       std::uint32_t guard) {
    return {.spec = {.key = key, .dtype = DType::kU32, .shape = {values.size()}},
            .data = std::as_bytes(std::span(values)),
            .guard = guard};
  }

  std::vector<std::uint32_t> first;
  std::vector<std::uint32_t> second;
  std::vector<std::uint32_t> plain;
};

class WindowTest : public testing::Test {
 protected:
  WindowTest() {
    set_log_sink([](std::string_view) {});
    model_.fill(1);
  }
  ~WindowTest() override {
    fail_points::disarm();
    set_log_sink({});
  }

  // Behind training, unless a test chooses: a copy at once leaves nothing to tear.
  Checkpointer open(Options options = {.profile = Profile::kLatency}) {
    auto opened = Checkpointer::open(dir_.path() / "run", std::move(options));
    EXPECT_TRUE(opened) << opened.error().message();
    return std::move(*opened);
  }
  SaveHandle save(Checkpointer& run, std::uint64_t step, bool confirm = false) {
    auto saved = run.save({.step = step, .tensors = model_.table(), .confirm = confirm});
    EXPECT_TRUE(saved && *saved);
    return **saved;
  }
  [[nodiscard]] std::vector<std::uint64_t> steps() const {
    std::vector<std::uint64_t> found;
    const auto listed = list_checkpoints(dir_.path() / "run");
    for (const auto& info : *listed) found.push_back(info.step);
    return found;
  }
  void expect_restores(std::uint64_t step, std::size_t elements = 400'000) {
    Checkpointer run = open();
    Model restored(elements);
    const auto report = restore_newest(run, restored.targets());
    ASSERT_TRUE(report) << report.error().message();
    Model expected(elements);
    expected.fill(step);
    EXPECT_TRUE(restored == expected);
  }
  void hold_the_background() { ASSERT_TRUE(fail_points::arm("capture.background=sleep:200")); }

  ScopedDir dir_;
  Model model_;
};

ErrorCode failure_of(const SaveHandle& handle) {
  const Status durable = handle.wait(Level::kDurable, kDeadline);
  return durable ? ErrorCode::kInternal : durable.error().code();
}

TEST_F(WindowTest, WhatIsChangedAfterItsFenceIsSavedAsItWas) {
  for (const Profile profile : {Profile::kLatency, Profile::kThroughput, Profile::kAuto}) {
    {
      Checkpointer run = open({.profile = profile});
      model_.fill(1);
      const SaveHandle handle = save(run, 1);
      std::ranges::fill(model_.plain, 77U);  // nothing guards it: it is copied already
      run.fence(kFirst);
      std::ranges::fill(model_.first, 0U);
      run.fence(kSecond);
      std::ranges::fill(model_.second, 0U);
      ASSERT_TRUE(handle.wait(Level::kDurable, kDeadline));
      const bool is_late = profile == Profile::kLatency;
      if (profile != Profile::kAuto) {
        EXPECT_EQ(handle.status().guarded_bytes, is_late ? 2 * 400'000 * sizeof(std::uint32_t) : 0);
      }
    }
    expect_restores(1);
  }
}

TEST_F(WindowTest, AFenceCopiesWhatTheBackgroundDoesNot) {
  Checkpointer run = open();
  hold_the_background();
  const SaveHandle handle = save(run, 1);
  run.fence();
  std::ranges::fill(model_.first, 0U);
  EXPECT_GT(handle.status().fence_seconds, 0);
  ASSERT_TRUE(handle.wait(Level::kDurable, kDeadline));
}

TEST_F(WindowTest, AChangeWithoutAFenceFailsTheSaveAndNamesTheTensor) {
  Checkpointer run = open();
  hold_the_background();
  const SaveHandle torn = save(run, 1);
  std::ranges::fill(model_.second, 0U);
  EXPECT_EQ(failure_of(torn), ErrorCode::kTornCapture);
  EXPECT_EQ(torn.status().torn, std::vector<std::string>{"second"});
  EXPECT_NE(torn.status().error->message().find("second"), std::string::npos);
  fail_points::disarm();
  EXPECT_TRUE(save(run, 2).wait(Level::kDurable, kDeadline));
  EXPECT_EQ(steps(), std::vector<std::uint64_t>{2});
}

TEST_F(WindowTest, ParanoidFindsOneByte) {
  Checkpointer run = open({.profile = Profile::kLatency, .paranoid = true});
  hold_the_background();
  const SaveHandle torn = save(run, 1);
  model_.first[123'456] ^= 1U;
  EXPECT_EQ(failure_of(torn), ErrorCode::kTornCapture);
  EXPECT_EQ(torn.status().torn, std::vector<std::string>{"first"});
}

TEST_F(WindowTest, NothingIsCapturedBeforeItsConfirmation) {
  Checkpointer run = open();
  const SaveHandle handle = save(run, 1, true);
  ASSERT_TRUE(handle.wait_copied(kDeadline));
  const Status early = handle.wait(Level::kCaptured, milliseconds{50});
  ASSERT_FALSE(early);
  EXPECT_EQ(early.error().code(), ErrorCode::kTimeout);
  handle.confirm({});
  handle.confirm({"first"});  // only the first call counts
  EXPECT_TRUE(handle.wait(Level::kDurable, kDeadline));
}

TEST_F(WindowTest, WhatIsCopiedAtOnceNeedsNoConfirmation) {
  Checkpointer run = open({.profile = Profile::kThroughput});
  const SaveHandle handle = save(run, 1, true);
  EXPECT_TRUE(handle.wait_copied(kDeadline));
  EXPECT_TRUE(handle.wait(Level::kDurable, kDeadline));
}

TEST_F(WindowTest, WhatTheCallerFoundTornIsNotCommitted) {
  Checkpointer run = open();
  const SaveHandle handle = save(run, 1, true);
  ASSERT_TRUE(handle.wait_copied(kDeadline));
  handle.confirm({"second", "first", "second"});
  EXPECT_EQ(failure_of(handle), ErrorCode::kTornCapture);
  EXPECT_EQ(handle.status().torn, (std::vector<std::string>{"first", "second"}));
  EXPECT_TRUE(steps().empty());
}

TEST_F(WindowTest, ClosingGivesUpWhatNobodyConfirms) {
  Checkpointer run = open();
  const SaveHandle handle = save(run, 1, true);
  EXPECT_FALSE(run.close()) << "it was the only save, and nobody has waited for it";
  EXPECT_EQ(failure_of(handle), ErrorCode::kCancelled);
  handle.confirm({});  // too late, and harmless
}

TEST_F(WindowTest, AStateLargerThanTheArenaStreamsThroughIt) {
  constexpr std::size_t kElements = 3'000'000;  // 24 MB guarded
  for (const bool all_guarded : {true, false}) {
    model_ = Model(kElements);
    {
      Checkpointer run = open({.arena_bytes_max = 8 << 20});
      for (std::uint64_t step = 1; step <= 3; ++step) {
        model_.fill(step);
        TensorTable table = model_.table();
        if (!all_guarded) {
          for (Tensor& tensor : table) tensor.guard = 0;
        }
        const auto handle = run.save({.step = step, .tensors = table});
        ASSERT_TRUE(handle && *handle);
        run.fence(kSecond);
        std::ranges::fill(model_.second, 0U);
        run.fence();
        std::ranges::fill(model_.first, 0U);
        const Status durable = (*handle)->wait(Level::kDurable, kDeadline);
        ASSERT_TRUE(durable) << durable.error().message();
      }
    }
    expect_restores(3, kElements);
  }
}

// A ring is filled at the speed of the disk, and `plain` lies behind the tensors that fill it.
TEST_F(WindowTest, WhatNothingGuardsDoesNotWaitForTheDisk) {
  model_ = Model(3'000'000);
  model_.fill(1);
  Checkpointer run = open({.profile = Profile::kLatency, .arena_bytes_max = 8 << 20});
  ASSERT_TRUE(fail_points::arm("part.write=sleep:1000"));
  const SaveHandle handle = save(run, 1);
  EXPECT_EQ(handle.status().bytes_written, 0U);
  fail_points::disarm();
  std::ranges::fill(model_.plain, 7U);  // it is copied
  run.fence();
  ASSERT_TRUE(handle.wait(Level::kDurable, kDeadline));
  ASSERT_TRUE(run.close());
  expect_restores(1, 3'000'000);
}

// The first save makes no mapping as large as the parked tensors, or as the ring.
TEST_F(WindowTest, PrewarmTakesWhatAStreamedStateCopiesAside) {
  constexpr std::size_t kPlain = 4'000'000;  // 16 MB, of 64
  model_ = Model(6'000'000);
  model_.plain.resize(kPlain);
  Checkpointer run = open({.profile = Profile::kLatency, .arena_bytes_max = 24 << 20});
  ASSERT_TRUE(run.prewarm({.tensors = model_.table()}));
  const DeniedCall no_memory{
      .number = SYS_mmap, .os_errno = ENOMEM, .argument = 1, .least = 12 << 20, .most = 28 << 20};
  const bool ran = run_with_denied(no_memory, [&] {
    const SaveHandle handle = save(run, 1);
    run.fence();
    const Status saved = handle.wait(Level::kDurable, kDeadline);
    EXPECT_TRUE(saved) << saved.error().message();
  });
  if (!ran) GTEST_SKIP() << "LEFT OUT: this machine allows no seccomp filter";
}

TEST_F(WindowTest, AWriteErrorLetsFencesPassAndTheNextSaveWorks) {
  for (const std::optional<std::size_t> arena : {std::optional<std::size_t>{}, {8U << 20U}}) {
    model_ = Model(3'000'000);
    model_.fill(1);
    Checkpointer run = open({.arena_bytes_max = arena});
    ASSERT_TRUE(fail_points::arm("part.write=error:EIO@2"));
    const SaveHandle failed = save(run, 1);
    run.fence();
    EXPECT_EQ(failure_of(failed), ErrorCode::kIo);
    fail_points::disarm();
    EXPECT_TRUE(save(run, 2).wait(Level::kDurable, kDeadline));
  }
}

TEST_F(WindowTest, ASaveGoesOnFromAnEarlyCapture) {
  {
    Checkpointer run = open();
    ASSERT_TRUE(run.begin_capture(model_.table()).value());
    run.release(kSecond);
    run.release(kFirst);
    std::ranges::fill(model_.plain, 5U);  // not final before save()
    std::ranges::fill(model_.plain, 1U);
    const SaveHandle handle = save(run, 1);
    EXPECT_TRUE(handle.status().early);
    run.fence();
    std::ranges::fill(model_.first, 0U);
    ASSERT_TRUE(handle.wait(Level::kDurable, kDeadline));
  }
  expect_restores(1);
}

TEST_F(WindowTest, WhatBeganEarlyIsNotCopiedAtOnce) {
  Checkpointer run = open({.profile = Profile::kThroughput});
  ASSERT_TRUE(run.begin_capture(model_.table()).value());
  run.release(kFirst);
  run.release(kSecond);
  const SaveHandle handle = save(run, 1);
  EXPECT_TRUE(handle.status().early);
  ASSERT_TRUE(handle.wait(Level::kDurable, kDeadline));
}

// save() would wait for the disk.
TEST_F(WindowTest, WhatStreamsThroughARingIsNotCopiedAtOnce) {
  model_ = Model(3'000'000);
  Checkpointer run = open({.profile = Profile::kThroughput, .arena_bytes_max = 8 << 20});
  const SaveHandle handle = save(run, 1);
  EXPECT_GT(handle.status().guarded_bytes, 0U);
  run.fence();
  ASSERT_TRUE(handle.wait(Level::kDurable, kDeadline));
}

TEST_F(WindowTest, AnEarlyCaptureThatDoesNotFitIsMadeAnew) {
  const auto early_after = [&](std::uint64_t step, auto change) {
    Checkpointer run = open();
    model_.fill(0);
    EXPECT_TRUE(run.begin_capture(model_.table()).value());
    run.release(kFirst);
    change(run);
    model_.fill(step);
    const SaveHandle handle = save(run, step);
    EXPECT_TRUE(handle.wait(Level::kDurable, kDeadline));
    return handle.status().early;
  };
  EXPECT_FALSE(early_after(1, [](Checkpointer&) {}));  // kSecond was not released
  EXPECT_FALSE(early_after(2, [](Checkpointer& run) { run.release(kSecond); }));  // and changed
  EXPECT_FALSE(early_after(3, [](Checkpointer& run) { run.release(kFirst); }));   // released twice
  EXPECT_FALSE(early_after(4, [](Checkpointer& run) { run.discard_capture(); }));
  expect_restores(4);
}

TEST_F(WindowTest, AnEarlyCaptureOfOtherMemoryOrUnderOtherGuardsIsMadeAnew) {
  Model other;
  other.fill(2);
  const auto early_of = [&](std::uint64_t step, const TensorTable& table) {
    Checkpointer run = open();
    EXPECT_TRUE(run.begin_capture(model_.table()).value());
    run.release(kFirst);
    run.release(kSecond);
    const auto handle = run.save({.step = step, .tensors = table});
    EXPECT_TRUE(handle.value()->wait(Level::kDurable, kDeadline));
    return handle.value()->status().early;
  };
  TensorTable one_guard = model_.table();
  one_guard[0].guard = kSecond;
  EXPECT_FALSE(early_of(1, one_guard));
  EXPECT_TRUE(early_of(3, model_.table()));
  EXPECT_FALSE(early_of(4, other.table()));
  expect_restores(2);
}

// Its worker may be anywhere when the last handle goes.
TEST_F(WindowTest, ASaveThatNobodyCanConfirmFailsAndTheNextOneWorks) {
  Checkpointer run = open({.on_busy = OnBusy::kBlock, .profile = Profile::kLatency});
  model_ = Model(20'000);
  model_.fill(1);
  std::mt19937 random(1);
  for (std::uint64_t step = 1; step <= 200; ++step) {
    const auto abandoned = run.save({.step = step, .tensors = model_.table(), .confirm = true});
    ASSERT_TRUE(abandoned && *abandoned);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 1'000));
  }
  run.wait();
  EXPECT_EQ(steps(), std::vector<std::uint64_t>{});
  EXPECT_TRUE(save(run, 201).wait(Level::kDurable, kDeadline));
}

TEST_F(WindowTest, GuardsNeedNotFollowEachOtherAndThoseWithoutTensorsAreNobodys) {
  TensorTable table = model_.table();
  table[1].guard = 9;
  Checkpointer run = open();
  ASSERT_TRUE(run.begin_capture(table).value());
  for (const std::uint32_t guard : {0U, 5U, kFirst, 9U, 5U, 77U}) run.release(guard);
  const auto handle = run.save({.step = 1, .tensors = table});
  ASSERT_TRUE(handle && *handle);
  EXPECT_TRUE((*handle)->status().early);
  run.fence(77);
  EXPECT_TRUE((*handle)->wait(Level::kDurable, kDeadline));
}

TEST_F(WindowTest, NoEarlyCaptureBeginsWhileASaveUsesTheArena) {
  Checkpointer run = open();
  hold_the_background();
  const SaveHandle handle = save(run, 1);
  EXPECT_FALSE(run.begin_capture(model_.table()).value());
  EXPECT_TRUE(handle.wait(Level::kDurable, kDeadline));
}

TEST_F(WindowTest, NoEarlyCaptureBeginsOfWhatHasNoGuard) {
  Checkpointer run = open();
  TensorTable table = model_.table();
  for (Tensor& tensor : table) tensor.guard = 0;
  EXPECT_FALSE(run.begin_capture(table).value());
}

TEST_F(WindowTest, FencesAreForEveryThread) {
  Checkpointer run = open();
  for (std::uint64_t step = 1; step <= 20; ++step) {
    model_.fill(step);
    const SaveHandle handle = save(run, step);
    {
      const std::jthread other([&] { run.fence(kFirst); });
      run.fence(kSecond);
      run.fence();
    }
    ASSERT_TRUE(handle.wait(Level::kDurable, kDeadline));
  }
}

TEST(SaveHandle, AForkedChildCanLetGoOfOneThatAThreadOfItsParentWaitsFor) {
  auto state = make_handle_state(1);
  const auto raw = state.get();
  std::optional<SaveHandle> handle(std::move(state));
  const std::jthread waiter([&] { std::ignore = handle->wait(Level::kDurable); });
  std::this_thread::sleep_for(milliseconds{50});  // so that it waits; if not, nothing is shown
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);  // the verdict on a child that hangs
    handle.reset();
    ::_exit(0);
  }
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  raw->fail(Error(ErrorCode::kCancelled, "the test is over"));
}

TEST_F(WindowTest, AForkedChildPassesEveryFence) {
  Checkpointer run = open();
  hold_the_background();
  const SaveHandle handle = save(run, 1);
  const pid_t child = ::fork();
  if (child == 0) {
    run.fence();
    run.release(kFirst);
    ::_exit(run.begin_capture(model_.table()) ? 1 : 0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(handle.wait(Level::kDurable, kDeadline));
}

// In a ring the unguarded tensors are parked: if there is no memory for that, nothing was copied.
// Sanitizers take a megabyte or two at a time for themselves.
TEST_F(WindowTest, MemoryForParkingThatIsRefusedCostsThatSaveOnly) {
  Model large(4'000'000);
  large.plain.resize(400'000);  // a slab
  large.fill(1);
  Checkpointer run = open({.profile = Profile::kLatency, .arena_bytes_max = 8 << 20});
  const DeniedCall no_parking{
      .number = SYS_mmap, .os_errno = ENOMEM, .argument = 1, .least = 4 << 20, .most = 6 << 20};
  const bool ran = run_with_denied(no_parking, [&] {
    const auto refused = run.save({.step = 1, .tensors = large.table()});
    ASSERT_TRUE(refused && *refused);
    EXPECT_EQ(code_of((*refused)->wait(Level::kDurable, kDeadline)), ErrorCode::kNoSpace);
  });
  if (!ran) GTEST_SKIP() << "LEFT OUT: this machine allows no seccomp filter";
  const auto saved = run.save({.step = 2, .tensors = large.table()});
  ASSERT_TRUE(saved && *saved);
  run.fence();
  EXPECT_TRUE((*saved)->wait(Level::kDurable, kDeadline));
}

}  // namespace
}  // namespace deepfreeze::window_test

// A refused allocation costs the save that asked for it, and nothing else.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <optional>
#include <semaphore>
#include <thread>

#include "base/fail_point.h"
#include "base/log.h"
#include "deepfreeze/deepfreeze.h"
#include "support/refuse_memory.h"
#include "support/scoped_dir.h"
#include "support/thread_ranks.h"

namespace deepfreeze {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kDeadline{60'000};  // for waits that must not hang, not a verdict on speed
constexpr std::uint32_t kGuard = 1;
constexpr std::size_t kPieces = 16;
constexpr std::size_t kBytes = kPieces * 64 * 1024;

// One guarded tensor in pages of its own, so that it can be taken away.
class Source {
 public:
  Source()
      : bytes_(static_cast<std::byte*>(
            ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {}
  ~Source() { ::munmap(bytes_, kBytes); }
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  [[nodiscard]] TensorTable table() const {
    return {{.spec = {.key = "w", .dtype = DType::kU8, .shape = {kBytes}},
             .data = std::span(bytes_, kBytes),
             .guard = kGuard}};
  }
  // From here on a read of it ends the program.
  void forbid() { ASSERT_EQ(::mprotect(bytes_, kBytes, PROT_NONE), 0); }

 private:
  std::byte* bytes_;
};

class RefusedMemoryTest : public testing::Test {
 protected:
  RefusedMemoryTest() {
    set_log_sink([](std::string_view) {});
  }
  ~RefusedMemoryTest() override {
    fail_points::disarm();
    set_log_sink({});
  }

  Checkpointer open() {
    auto opened = Checkpointer::open(
        run_dir(), {.keep = {.last = 1}, .on_busy = OnBusy::kSkip, .profile = Profile::kLatency});
    EXPECT_TRUE(opened) << opened.error().message();
    return std::move(*opened);
  }
  [[nodiscard]] std::filesystem::path run_dir() const { return dir_.path() / "run"; }

  // Empty if the arena is another save's.
  std::optional<SaveHandle> save(Checkpointer& run, const Source& source, bool confirm = false) {
    auto saved = run.save({.step = ++step_, .tensors = source.table(), .confirm = confirm});
    EXPECT_TRUE(saved) << saved.error().message();
    return saved ? std::move(*saved) : std::nullopt;
  }
  void save_durably(Checkpointer& run) {
    const auto handle = save(run, source_);
    ASSERT_TRUE(handle) << "the arena was not given back";
    const Status durable = handle->wait(Level::kDurable, kDeadline);
    ASSERT_TRUE(durable) << durable.error().message();
    run.wait();
  }

  // Whether the worker has come to the last save.
  [[nodiscard]] bool is_begun() const {
    const std::string number = std::to_string(step_) + "-";
    return std::ranges::any_of(std::filesystem::directory_iterator(run_dir()), [&](const auto& it) {
      return it.path().filename().string().find(number) != std::string::npos;
    });
  }

  ScopedDir dir_;
  Source source_;
  std::uint64_t step_ = 1'000'000;  // all of one length
};

bool comes_true(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + kDeadline;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(milliseconds{1});
  }
  return true;
}

// Stops a thread at each of its allocations, until one is refused.
class Stepper {
 public:
  explicit Stepper(pid_t thread) : refusal_(thread, [this] { return stop_and_ask(); }) {}
  ~Stepper() {
    if (!is_over_) answer(false, true);
  }
  Stepper(const Stepper&) = delete;
  Stepper& operator=(const Stepper&) = delete;

  // False if the thread has not come to another one in time.
  [[nodiscard]] bool await_stop() { return stopped_.try_acquire_for(kDeadline); }
  void grant() { answer(false, false); }
  void refuse() { answer(true, true); }

 private:
  void answer(bool refused, bool last) {
    refused_ = refused;
    is_over_ = last;
    answered_.release();
  }
  bool stop_and_ask() {
    if (is_over_) return false;
    stopped_.release();
    answered_.acquire();
    return refused_;
  }

  std::binary_semaphore stopped_{0};
  std::counting_semaphore<2> answered_{0};
  bool refused_ = false;  // read after the answer only
  std::atomic<bool> is_over_ = false;
  MemoryRefusal refusal_;  // last: its end waits for the thread
};

TEST_F(RefusedMemoryTest, OfTheFirstStepGivesTheArenaBack) {
  Checkpointer run = open();
  save_durably(run);
  {
    Stepper worker(thread_named("df-save"));
    const auto refused = save(run, source_);
    ASSERT_TRUE(refused);
    run.fence();
    ASSERT_TRUE(worker.await_stop());
    worker.refuse();
    EXPECT_EQ(refused->wait(Level::kDurable, kDeadline).error().code(), ErrorCode::kNoSpace);
  }
  run.wait();
  save_durably(run);
}

// The rest of the attempt must not look as if its process might still commit it. Only up to the
// commit: there the JSON library's destructors take memory, and end the program if it is refused.
TEST_F(RefusedMemoryTest, OfTheWorkerLeavesNothingUndecided) {
  Checkpointer run = open();
  save_durably(run);
  int refused = 0;
  for (bool is_committing = false; !is_committing && !HasFailure();) {
    SCOPED_TRACE(++refused);
    std::atomic<int> allocations = 0;
    {
      const MemoryRefusal refusal(thread_named("df-save"),
                                  [&] { return ++allocations == refused; });
      const auto handle = save(run, source_);
      ASSERT_TRUE(handle);
      run.fence();
      const Status durable = handle->wait(Level::kDurable, kDeadline);
      const std::string said = durable ? "" : durable.error().message();
      is_committing = said.find("outcome unknown") != std::string::npos;
      run.wait();
    }
    for (const auto& entry : std::filesystem::directory_iterator(run_dir())) {
      if (!entry.is_directory()) continue;
      EXPECT_TRUE(std::filesystem::exists(entry.path() / "manifest.json")) << entry.path();
    }
  }
  EXPECT_GT(refused, 30);
  save_durably(run);
}

Status save_as(Checkpointer& run, std::uint32_t rank, std::uint64_t step) {
  const Source source;
  TensorTable table = source.table();
  table[0].spec.key = fmt::format("@rank{:05}.w", rank);
  table[0].guard = 0;
  const auto handle = run.save({.step = step, .tensors = table});
  if (!handle) return std::unexpected(handle.error());
  return (*handle)->wait(Level::kDurable, kDeadline);
}

// Whether a part of that step has its final name.
bool is_sealed(const std::filesystem::path& run_dir, std::uint64_t step) {
  const std::string number = std::to_string(step) + "-";
  return std::ranges::any_of(std::filesystem::recursive_directory_iterator(run_dir), [&](auto& it) {
    return it.path().string().find(number) != std::string::npos &&
           it.path().extension() == ".safetensors";
  });
}

// Refuses the worker of whichever rank has its own first. Up to the commit, as above.
struct OneRanksRefusal {
  OneRanksRefusal(int at, const std::filesystem::path& run_dir, std::uint64_t step)
      : refusal(thread_named("df-save"), [=, this] {
          if (++allocations == at) is_refused = !is_sealed(run_dir, step);
          return allocations == at && is_refused;
        }) {}

  int allocations = 0;
  std::atomic<bool> is_refused = false;
  MemoryRefusal refusal;
};

TEST_F(RefusedMemoryTest, OfOneRanksWorkerIsEveryRanksErrorAndTheNextIsSaved) {
  constexpr int kStride = 3;
  std::atomic<int> failed = 0;
  int losses = 0;
  for (int at = 1; at < 20 * kStride && !HasFailure(); at += kStride) {
    SCOPED_TRACE(at);
    step_ += 3;
    failed = 0;
    ThreadRanks(2).run([&](std::uint32_t rank, const std::shared_ptr<RankGroup>& group) {
      Options options{.profile = Profile::kLatency};
      options.ranks = group;
      auto run = Checkpointer::open(run_dir(), options);
      ASSERT_TRUE(run) << run.error().message();
      ASSERT_TRUE(save_as(*run, rank, step_));
      run->wait();
      ASSERT_TRUE(run->agree("", {}));
      std::optional<OneRanksRefusal> one;
      if (rank == 0) one.emplace(at, run_dir(), step_ + 1);
      ASSERT_TRUE(run->agree("", {}));
      failed += save_as(*run, rank, step_ + 1) ? 0 : 1;
      ASSERT_TRUE(run->agree("", {}));
      one.reset();
      ASSERT_TRUE(run->agree("", {}));
      const Status next = save_as(*run, rank, step_ + 2);
      EXPECT_TRUE(next) << next.error().message();
    });
    EXPECT_EQ(failed % 2, 0) << "one has the step, the other has not";
    EXPECT_EQ(failed == 0, is_sealed(run_dir(), step_ + 1));
    losses += failed / 2;
  }
  EXPECT_GT(losses, 5);
}

// The worker's first allocation once the arena is free again is one of the commit.
TEST_F(RefusedMemoryTest, OfACommitDoesNotTakeTheArenaFromTheNextSave) {
  Checkpointer run = open();
  save_durably(run);
  std::optional<SaveHandle> next;
  {
    Stepper worker(thread_named("df-save"));
    const auto first = save(run, source_);
    ASSERT_TRUE(first);
    run.fence();
    for (;;) {
      ASSERT_TRUE(worker.await_stop());
      next = save(run, source_, true);
      if (next) break;
      worker.grant();
    }
    worker.refuse();
    EXPECT_EQ(first->wait(Level::kDurable, kDeadline).error().code(), ErrorCode::kNoSpace);
    ASSERT_TRUE(comes_true([&] { return is_begun(); }));
  }
  EXPECT_FALSE(save(run, source_)) << "the next save, not confirmed yet, has the arena";
  ASSERT_TRUE(next->wait_copied(kDeadline));
  next->confirm({});
  EXPECT_TRUE(next->wait(Level::kDurable, kDeadline));
  run.wait();
  save_durably(run);
}

// Each allocation of `act` is refused in turn. How many there are.
int sweep(const std::function<void()>& act, const std::function<void()>& check) {
  int all = 0;
  for (int at = 0; at <= all && !testing::Test::HasFailure(); ++at) {
    SCOPED_TRACE(at);
    int allocations = 0;
    {
      const MemoryRefusal refusal(::gettid(), [&] { return ++allocations == at; });
      EXPECT_NO_THROW(act());
    }
    if (at == 0) all = allocations;
    check();
  }
  return all;
}

TEST_F(RefusedMemoryTest, AnywhereInASaveGivesTheArenaBack) {
  Checkpointer run = open();
  save_durably(run);
  SaveRequest request{.tensors = source_.table()};
  const auto act = [&] {
    request.step = ++step_;
    std::ignore = run.save(request);
  };
  const auto check = [&] {
    run.fence();
    run.wait();
    save_durably(run);
  };
  EXPECT_GT(sweep(act, check), 30);
}

TEST_F(RefusedMemoryTest, AnywhereInBeginCaptureGivesTheArenaBack) {
  Checkpointer run = open();
  save_durably(run);
  const TensorTable table = source_.table();
  const auto act = [&] { std::ignore = run.begin_capture(table); };
  EXPECT_GT(sweep(act, [&] { save_durably(run); }), 5);
}

// Begins a capture, saves when some of it is copied, and has one allocation of save() refused.
class EarlySave {
 public:
  EarlySave(Checkpointer& run, std::uint64_t step, const TensorTable& table, int refused_at) {
    fail_points::start_recording();
    EXPECT_TRUE(run.begin_capture(table).value());
    run.release(kGuard);
    EXPECT_TRUE(comes_true([] { return !fail_points::recorded().empty(); }));  // the copier's
    const SaveRequest request{.step = step, .tensors = table};
    const MemoryRefusal refusal(::gettid(), [&] { return ++allocations == refused_at; });
    const auto saved = run.save(request);
    if (saved) handle = *saved;
  }

  int allocations = 0;
  std::optional<SaveHandle> handle;
};

// Sweeps back from the last allocation of a save() to one before its early capture is taken.
TEST_F(RefusedMemoryTest, OfASaveThatBeganEarlyLetsItsSourcesGo) {
  constexpr int kMoreAtMost = 8;  // allocations of a save than of the one before
  Checkpointer run = open();
  save_durably(run);
  ASSERT_TRUE(fail_points::arm("capture.piece=sleep:2"));  // save() returns long before the last
  const EarlySave whole(run, ++step_, source_.table(), 0);
  ASSERT_TRUE(whole.handle && whole.handle->wait(Level::kDurable, kDeadline));
  run.wait();
  int refused = 0;
  bool early = true;
  for (int last = whole.allocations + kMoreAtMost; early; --last) {
    SCOPED_TRACE(last);
    Source source;
    const EarlySave saved(run, ++step_, source.table(), last);
    ASSERT_TRUE(saved.handle);
    const Status durable = saved.handle->wait(Level::kDurable, kDeadline);
    early = saved.handle->status().early;
    refused += early && !durable ? 1 : 0;
    source.forbid();
    run.wait();
    save_durably(run);
  }
  EXPECT_GT(refused, 0);
}

// A paranoid save compares the bytes captured early, piece by piece, when it has taken them over.
TEST_F(RefusedMemoryTest, WhileAnEarlyCaptureIsComparedLetsItsSourcesGo) {
  auto run = Checkpointer::open(run_dir(), {.keep = {.last = 1},
                                            .on_busy = OnBusy::kSkip,
                                            .profile = Profile::kLatency,
                                            .paranoid = true});
  ASSERT_TRUE(run);
  save_durably(*run);
  ASSERT_TRUE(fail_points::arm("capture.piece=sleep:2"));
  int all = 0;
  int refused = 0;
  for (int at = 0; at <= all && !HasFailure(); ++at) {
    SCOPED_TRACE(at);
    Source source;
    const EarlySave saved(*run, ++step_, source.table(), at);
    if (at == 0) all = saved.allocations;
    if (saved.handle) {
      refused += saved.handle->wait(Level::kDurable, kDeadline) ? 0 : 1;
    }
    source.forbid();
    run->wait();
    save_durably(*run);
  }
  EXPECT_GT(refused, 10);
}

// It is called in the hooks of an update, which must go on. Paranoid, it sums piece by piece.
TEST_F(RefusedMemoryTest, OfAReleaseIsNoError) {
  auto run = Checkpointer::open(run_dir(), {.profile = Profile::kLatency, .paranoid = true});
  ASSERT_TRUE(run);
  save_durably(*run);
  int refused = 0;
  bool swept = false;
  for (int at = 1; !swept; ++at) {
    ASSERT_TRUE(run->begin_capture(source_.table()).value());
    int allocations = 0;
    {
      const MemoryRefusal refusal(::gettid(), [&] { return ++allocations == at; });
      EXPECT_NO_THROW(run->release(kGuard));
    }
    swept = allocations < at;
    refused += swept ? 0 : 1;
    save_durably(*run);
  }
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace deepfreeze

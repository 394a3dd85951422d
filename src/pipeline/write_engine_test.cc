#include "pipeline/write_engine.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <stdlib.h>  // NOLINT: setenv
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <iostream>
#include <thread>

#include "base/log.h"
#include "base/scope_exit.h"
#include "base/try.h"
#include "pipeline/part_fixture.h"
#include "storage/posix_vfs.h"
#include "storage/uring_queue.h"
#include "support/code_of.h"
#include "support/deny_syscall.h"
#include "support/scoped_dir.h"
#include "support/sim_disk.h"

namespace deepfreeze {
namespace {

class WriteEngineTest : public testing::Test {
 protected:
  WriteEngineTest() {
    set_log_sink([this](std::string_view line) { lines_.emplace_back(line); });
  }
  ~WriteEngineTest() override { set_log_sink({}); }

  // As a save does it; the file is as it must be, and goes again.
  void expect_writes(WriteEngine& engine, Vfs& vfs, const Data& data) {
    const Status written = write(engine, vfs, data);
    ASSERT_TRUE(written) << written.error().message();
    EXPECT_TRUE(read_file(vfs, kName, 1ULL << 30).value() == expected_file(data));
    EXPECT_TRUE(vfs.remove_file(kName));
  }
  void expect_writes(WriteEngine& engine, const Data& data) { expect_writes(engine, *vfs_, data); }

  [[nodiscard]] static Status write(WriteEngine& engine, Vfs& vfs, const Data& data) {
    DF_TRY(const auto writer, engine.start(vfs, spec_of(data)));
    push_all(*writer, data.slabs());
    return writer->finish(make_header);
  }
  // Null, and the test is left out, if this machine has no io_uring.
  [[nodiscard]] static std::unique_ptr<WriteEngine> open_uring() {
    auto engine = WriteEngine::open({.mode = IoMode::kUring});
    if (engine) return *std::move(engine);
    EXPECT_EQ(engine.error().code(), ErrorCode::kUnsupported) << engine.error().message();
    std::cerr << "LEFT OUT: " << engine.error().message() << "\n";
    return nullptr;
  }
  [[nodiscard]] bool has_one_line_with(std::string_view text) const {
    return lines_.size() == 1 && lines_[0].find(text) != std::string::npos;
  }

  ScopedDir dir_;
  std::unique_ptr<Vfs> vfs_ = open_posix_vfs(dir_.path()).value();
  std::vector<std::string> lines_;
};

TEST_F(WriteEngineTest, TheModeIsReadFromTheEnvironment) {
  const ScopeExit unset([] { ::unsetenv("DEEPFREEZE_IO"); });
  ::unsetenv("DEEPFREEZE_IO");
  EXPECT_EQ(io_mode_from_environment().value(), IoMode::kAuto);
  for (const auto& [text, mode] :
       std::vector<std::pair<const char*, IoMode>>{{"", IoMode::kAuto},
                                                   {"uring", IoMode::kUring},
                                                   {"direct", IoMode::kDirect},
                                                   {"buffered", IoMode::kBuffered}}) {
    ::setenv("DEEPFREEZE_IO", text, 1);
    EXPECT_EQ(io_mode_from_environment().value(), mode) << text;
  }
  for (const char* text : {"auto", "URING", "uring ", "1", "direct,buffered"}) {
    ::setenv("DEEPFREEZE_IO", text, 1);
    const auto mode = io_mode_from_environment();
    ASSERT_EQ(code_of(mode), ErrorCode::kInvalidArgument) << text;
    EXPECT_EQ(mode.error().message(),
              std::string("DEEPFREEZE_IO=\"") + text + "\": choose uring, direct or buffered");
  }
}

// False, and `body` has not run, if io_uring is there and this machine lets nobody refuse it. qemu,
// which runs the tests of other processors, has neither filters nor io_uring.
bool run_without_io_uring(const std::function<void()>& body) {
  if (run_with_denied({.number = SYS_io_uring_setup, .os_errno = ENOSYS}, body)) return true;
  if (UringQueue::open(1)) return false;
  body();
  return true;
}

TEST_F(WriteEngineTest, WithoutIoUringItWritesWithThreadsAndSaysSoOnce) {
  const Data data(kThreeSlabs);
  const bool ran = run_without_io_uring([&] {
    const auto engine = WriteEngine::open({});
    ASSERT_TRUE(engine);
    EXPECT_EQ((*engine)->mode(), IoMode::kDirect);
    expect_writes(**engine, data);
    expect_writes(**engine, data);
    EXPECT_TRUE(has_one_line_with("set up io_uring: Function not implemented"));
  });
  if (!ran) GTEST_SKIP() << "LEFT OUT: this machine allows no seccomp filter";
}

TEST_F(WriteEngineTest, IoUringAskedForByNameAndMissingIsAnError) {
  const bool ran = run_without_io_uring([&] {
    const auto engine = WriteEngine::open({.mode = IoMode::kUring});
    ASSERT_EQ(code_of(engine), ErrorCode::kUnsupported);
    EXPECT_EQ(engine.error().message(),
              "DEEPFREEZE_IO=uring: set up io_uring: Function not implemented");
    EXPECT_TRUE(WriteEngine::open({.mode = IoMode::kDirect}));
    EXPECT_TRUE(WriteEngine::open({.mode = IoMode::kBuffered}));
  });
  EXPECT_TRUE(lines_.empty());
  if (!ran) GTEST_SKIP() << "LEFT OUT: this machine allows no seccomp filter";
}

TEST_F(WriteEngineTest, AFileSystemWithoutDirectWritesIsWrittenThroughThePageCache) {
  SimDisk disk;
  disk.refuse_direct();
  const auto engine = WriteEngine::open({.mode = IoMode::kDirect});
  ASSERT_TRUE(engine);
  EXPECT_EQ((*engine)->mode(), IoMode::kDirect);
  expect_writes(**engine, disk, Data(kThreeSlabs));
  expect_writes(**engine, disk, Data(kThreeSlabs));
  EXPECT_EQ((*engine)->mode(), IoMode::kBuffered);
  EXPECT_TRUE(has_one_line_with("the file system takes no direct writes"));
}

TEST_F(WriteEngineTest, ARingThatFailsIsGivenUpAndThePartStillWritten) {
  const auto engine = open_uring();
  if (!engine) GTEST_SKIP() << "LEFT OUT: this machine allows no io_uring";
  const Data data(kThreeSlabs);
  const DeniedCall denied = {.number = SYS_io_uring_enter, .os_errno = EPERM};
  const bool ran = run_with_denied(denied, [&] { expect_writes(*engine, data); });
  if (!ran) GTEST_SKIP() << "LEFT OUT: this machine allows no seccomp filter";
  expect_writes(*engine, data);
  EXPECT_EQ(engine->mode(), IoMode::kDirect);
  EXPECT_TRUE(has_one_line_with("io_uring failed"));
}

// A copier that waits for a slab's memory would else wait for ever.
TEST_F(WriteEngineTest, WhereNoThreadCanBeStartedThePushingOneWrites) {
  const Data data(kThreeSlabs);
  for (const IoMode mode : {IoMode::kAuto, IoMode::kDirect}) {
    const auto engine = WriteEngine::open({.mode = mode}).value();
    lines_.clear();
    const bool ran = run_with_denied({.number = SYS_clone3, .os_errno = EAGAIN}, [&] {
      std::size_t freed = 0;
      PartSpec spec = spec_of(data);
      spec.on_slab_free = [&freed](std::size_t) { ++freed; };
      const auto writer = engine->start(*vfs_, std::move(spec)).value();
      for (std::size_t slab = 0; slab < data.slabs(); ++slab) {
        writer->push(slab);
        const bool alone = !lines_.empty();  // an older library knows another way to a thread
        EXPECT_TRUE(!alone || freed == slab + 1);
      }
      ASSERT_TRUE(writer->finish(make_header));
      EXPECT_TRUE(read_file(*vfs_, kName, 1ULL << 30).value() == expected_file(data));
      EXPECT_TRUE(vfs_->remove_file(kName));
    });
    if (!ran) GTEST_SKIP() << "LEFT OUT: this machine allows no seccomp filter";
  }
}

TEST_F(WriteEngineTest, MemoryIsRegisteredAndOtherMemoryIsWrittenAllTheSame) {
  const auto engine = open_uring();
  if (!engine) GTEST_SKIP() << "LEFT OUT: this machine allows no io_uring";
  const Data data(kThreeSlabs);
  engine->use_memory(data.memory());
  EXPECT_EQ(engine->registered_bytes(), data.memory().size());
  expect_writes(*engine, data);
  expect_writes(*engine, Data(kThreeSlabs + 1));
  engine->use_memory({});
  EXPECT_EQ(engine->registered_bytes(), 0U);
  expect_writes(*engine, data);
  EXPECT_TRUE(lines_.empty());
}

constexpr rlim_t kLockedBytesMax = 256 * 1024;  // enough for the ring, which counts, not for data

// Root may lock any amount, so that right goes first; both only for this thread and this test.
void limit_locked_memory() {
  __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  std::array<__user_cap_data_struct, 2> sets = {};
  ASSERT_EQ(::syscall(SYS_capget, &header, sets.data()), 0);
  sets[0].effective &= ~(1U << CAP_IPC_LOCK);
  ASSERT_EQ(::syscall(SYS_capset, &header, sets.data()), 0);
  rlimit limit = {};
  ASSERT_EQ(::getrlimit(RLIMIT_MEMLOCK, &limit), 0);
  limit.rlim_cur = kLockedBytesMax;
  ASSERT_EQ(::setrlimit(RLIMIT_MEMLOCK, &limit), 0);
}

TEST_F(WriteEngineTest, WithoutTheRightToLockMemoryItWritesUnregistered) {
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_MEMLOCK, &before), 0);
  const ScopeExit restore([&before] { ::setrlimit(RLIMIT_MEMLOCK, &before); });
  bool has_uring = false;
  std::jthread([this, &has_uring] {
    limit_locked_memory();
    const auto engine = open_uring();
    has_uring = engine != nullptr;
    if (!has_uring) return;
    const Data data(kThreeSlabs);
    const Data other(kThreeSlabs);
    engine->use_memory(data.memory());
    expect_writes(*engine, data);
    engine->use_memory(other.memory());
    expect_writes(*engine, other);
    EXPECT_EQ(engine->registered_bytes(), 0U);
    EXPECT_EQ(engine->mode(), IoMode::kUring);
    EXPECT_TRUE(has_one_line_with(
        fmt::format("deepfreeze: note: saves are as fast and as safe as ever, though {} MiB could "
                    "not be registered with io_uring: this process may lock {} MiB.",
                    data.memory().size() >> 20U, kLockedBytesMax >> 20U)));
    EXPECT_TRUE(has_one_line_with("ulimit -l unlimited"));
  }).join();
  if (!has_uring) GTEST_SKIP() << "LEFT OUT: this machine allows no io_uring";
}

// The limit is told of only if it is the reason.
TEST_F(WriteEngineTest, AnotherReasonForUnregisteredWritesIsToldAsItIs) {
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_MEMLOCK, &before), 0);
  const ScopeExit restore([&before] { ::setrlimit(RLIMIT_MEMLOCK, &before); });
  rlimit limit = before;
  const auto lines_with = [this, &limit](int os_errno, rlim_t locked) {
    lines_.clear();
    limit.rlim_cur = std::min(locked, limit.rlim_max);
    EXPECT_EQ(::setrlimit(RLIMIT_MEMLOCK, &limit), 0);
    const auto engine = open_uring();
    if (engine == nullptr) return;
    const Data data(kThreeSlabs);
    const DeniedCall denied = {.number = SYS_io_uring_register, .os_errno = os_errno};
    ASSERT_TRUE(run_with_denied(denied, [&] { engine->use_memory(data.memory()); }));
    EXPECT_TRUE(has_one_line_with("saves go on without that, as fast"));
  };
  lines_with(EPERM, kLockedBytesMax);
  if (limit.rlim_max == RLIM_INFINITY) lines_with(ENOMEM, RLIM_INFINITY);
}

TEST_F(WriteEngineTest, DescriptorsDontGrow) {
  const auto count_descriptors = [] {
    const std::filesystem::directory_iterator descriptors("/proc/self/fd");
    return std::distance(begin(descriptors), end(descriptors));
  };
  const Data data(kPageBytes);
  const auto cycle = [&] {
    const auto engine = WriteEngine::open({});
    ASSERT_TRUE(engine);
    (*engine)->use_memory(data.memory());
    expect_writes(**engine, data);
  };
  cycle();
  const auto before = count_descriptors();
  for (int i = 0; i < 200; ++i) cycle();
  EXPECT_EQ(count_descriptors(), before);
}

TEST_F(WriteEngineTest, AForkedChildWritesNothingAndHarmsNothing) {
  auto engine = WriteEngine::open({});
  ASSERT_TRUE(engine);
  const Data data(kThreeSlabs);
  (*engine)->use_memory(data.memory());
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const bool refused = code_of((*engine)->start(*vfs_, spec_of(data))) == ErrorCode::kUnsupported;
    (*engine)->use_memory({});
    engine->reset();
    ::_exit(refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ((*engine)->mode() == IoMode::kUring, (*engine)->registered_bytes() > 0);
  expect_writes(**engine, data);
}

}  // namespace
}  // namespace deepfreeze

// A process that may open no more files: a save fails by its name, and the next one goes on.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>
#include <iterator>

#include "base/scope_exit.h"
#include "deepfreeze/deepfreeze.h"
#include "support/sanitized.h"
#include "support/scoped_dir.h"

namespace deepfreeze::scarce_descriptors_test {
namespace {

constexpr std::chrono::milliseconds kDeadline{60'000};  // for waits that must not hang
constexpr rlim_t kFewest = 3;                           // files stay open that are
constexpr rlim_t kMost = 128;

std::vector<float> state_at(std::uint64_t step) {
  return std::vector<float>(300'000, static_cast<float>(step));
}

Status save_step(Checkpointer& to, std::uint64_t step) {
  const std::vector<float> values = state_at(step);
  const auto handle =
      to.save({.step = step,
               .tensors = {{.spec = {.key = "w", .dtype = DType::kF32, .shape = {values.size()}},
                            .data = std::as_bytes(std::span(values))}}});
  if (!handle) return std::unexpected(handle.error());
  return (*handle)->wait(Level::kDurable, kDeadline);
}

std::ptrdiff_t open_files() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

Status save_with(rlim_t descriptors, Checkpointer& to, std::uint64_t step) {
  rlimit before = {};
  EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit fewer = {.rlim_cur = descriptors, .rlim_max = before.rlim_max};
  EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &fewer), 0);
  const ScopeExit restore([&before] { ::setrlimit(RLIMIT_NOFILE, &before); });
  return save_step(to, step);
}

std::vector<std::uint64_t> good_steps(const std::filesystem::path& run) {
  std::vector<std::uint64_t> steps;
  const auto listed = list_checkpoints(run);
  EXPECT_TRUE(listed.has_value());
  for (const CheckpointInfo& info : *listed) {
    std::vector<float> found(state_at(info.step).size());
    const auto opened = open_checkpoint(info);
    EXPECT_TRUE(opened.has_value()) << opened.error().message();
    const RestoreTarget target{"w", std::as_writable_bytes(std::span(found))};
    const Status read = opened->read(std::span(&target, 1));
    EXPECT_TRUE(read.has_value()) << read.error().message();
    EXPECT_EQ(found, state_at(info.step));
    steps.push_back(info.step);
  }
  return steps;
}

// With one file more each time, until a save has all that it needs.
TEST(ScarceDescriptors, ASaveThatGetsNoneIsLostAndNothingElseIs) {
  if (kAddressSanitized) {
    // Without one, UBSan calls any object's table of virtual functions invalid.
    GTEST_SKIP() << "LEFT OUT: the sanitizer needs a descriptor to look at memory";
  }
  const ScopedDir directory;
  const std::filesystem::path run = directory.path() / "run";
  auto opened = Checkpointer::open(run, {});
  ASSERT_TRUE(opened.has_value());
  ASSERT_TRUE(save_step(*opened, 1).has_value());
  const std::ptrdiff_t open_before = open_files();
  std::vector<std::uint64_t> acknowledged = {1};
  std::size_t refused = 0;
  for (rlim_t files = kFewest; files < kMost && acknowledged.size() == 1; ++files) {
    const std::uint64_t step = files;
    const Status saved = save_with(files, *opened, step);
    if (saved) {
      acknowledged.insert(acknowledged.begin(), step);
      continue;
    }
    ++refused;
    EXPECT_EQ(saved.error().code(), ErrorCode::kIo) << saved.error().message();
    EXPECT_TRUE(saved.error().message().contains("Too many open files")) << saved.error().message();
    EXPECT_EQ(good_steps(run), acknowledged);
  }
  EXPECT_GT(refused, 0U) << "it needs no file: the test has no power";
  EXPECT_EQ(acknowledged.size(), 2U) << "it went on failing";
  EXPECT_EQ(good_steps(run), acknowledged);
  EXPECT_EQ(open_files(), open_before) << "what failed has left files open";
}

}  // namespace
}  // namespace deepfreeze::scarce_descriptors_test

// States whose headers do not fit into one file, by the public interface on the real file system.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>

#include "base/fail_point.h"
#include "base/thread_sanitizer.h"
#include "deepfreeze/deepfreeze.h"
#include "support/scoped_dir.h"

namespace deepfreeze::several_files_test {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kDeadline{60'000};  // for waits that must not hang
constexpr std::size_t kTensors = 4'000;
constexpr std::size_t kElements = 512;
constexpr std::size_t kTreeBytes = 9'000'000;      // of three pieces
constexpr std::size_t kFiles = 3;                  // of which two have tensors
constexpr std::uint64_t kArenaBytesMax = 8 << 20;  // less than the data

// The longest names, so that few tensors are many bytes of text.
std::string key_of(std::size_t tensor) {
  return std::to_string(tensor) + "." + std::string(kKeyBytesMax - 8, 'k');
}

class State {
 public:
  explicit State(std::uint64_t step) : values_(kTensors * kElements) {
    for (std::size_t i = 0; i < values_.size(); ++i) {
      values_[i] = static_cast<float>(i % 100'003 + step);
    }
  }
  [[nodiscard]] TensorTable table() const {
    TensorTable tensors;
    for (std::size_t i = 0; i < kTensors; ++i) {
      tensors.push_back(
          {.spec = {.key = key_of(i), .dtype = DType::kF32, .shape = {kElements}},
           .data = std::as_bytes(std::span(values_).subspan(i * kElements, kElements)),
           .guard = static_cast<std::uint32_t>(i % 3)});
    }
    return tensors;
  }
  std::vector<RestoreTarget> targets() {
    std::vector<RestoreTarget> all;
    for (std::size_t i = 0; i < kTensors; ++i) {
      const auto own = std::span(values_).subspan(i * kElements, kElements);
      all.push_back({key_of(i), std::as_writable_bytes(own)});
    }
    return all;
  }
  bool operator==(const State&) const = default;

 private:
  std::vector<float> values_;
};

// The middle of a character lies at every possible end of a piece.
std::string tree_of(std::uint64_t step) {
  static const std::string characters = [] {
    std::string text;
    while (text.size() < kTreeBytes) text += "\u20ac";
    return text;
  }();
  return "\"" + std::to_string(step) + characters + "\"";
}

class SeveralFiles : public testing::TestWithParam<bool> {
 protected:
  ~SeveralFiles() override { fail_points::disarm(); }

  Checkpointer open() {
    Options options;
    if (GetParam()) options.arena_bytes_max = kArenaBytesMax;
    auto opened = Checkpointer::open(dir_.path() / "run", options);
    EXPECT_TRUE(opened.has_value()) << opened.error().message();
    return *std::move(opened);
  }

  Status save(Checkpointer& run, std::uint64_t step) {
    const State state(step);
    const auto handle =
        run.save({.step = step, .tensors = state.table(), .objects = tree_of(step)});
    if (!handle) return std::unexpected(handle.error());
    return (*handle)->wait(Level::kDurable, kDeadline);
  }

  // The state that a new process finds, whole and verified.
  void expect_newest(std::uint64_t step) {
    Checkpointer run = open();
    State found(0);
    const auto report = restore_newest(run, found.targets());
    ASSERT_TRUE(report.has_value()) << report.error().message();
    EXPECT_EQ(report->restored.step, step);
    EXPECT_TRUE(found == State(step));
    const auto opened = open_checkpoint(report->restored);
    ASSERT_TRUE(opened.has_value()) << opened.error().message();
    EXPECT_TRUE(opened->objects() == tree_of(step));
    EXPECT_TRUE(verify_checkpoint(report->restored)->empty());
  }

  [[nodiscard]] std::vector<fs::path> files_of_newest() {
    std::vector<fs::path> files;
    const auto infos = list_checkpoints(dir_.path() / "run");
    for (const auto& entry : fs::directory_iterator(infos->front().path)) {
      if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
    }
    std::ranges::sort(files);
    return files;
  }

  ScopedDir dir_;
};

TEST_P(SeveralFiles, HoldOneCheckpoint) {
  {
    Checkpointer run = open();
    for (const std::uint64_t step : {1U, 2U}) ASSERT_TRUE(save(run, step));
  }
  EXPECT_EQ(files_of_newest().size(), kFiles);
  expect_newest(2);
}

class SeveralFilesFaults : public SeveralFiles {
 protected:
  void SetUp() override {
    if (DF_THREAD_SANITIZER) {
      GTEST_SKIP() << "LEFT OUT: a quarter of a minute under ThreadSanitizer, for the threads that "
                      "SeveralFiles.HoldOneCheckpoint has too";
    }
  }
};

// Each point is passed once or more for every file.
TEST_P(SeveralFilesFaults, AFailureAtAnyOfThemLeavesTheCheckpointBefore) {
  Checkpointer run = open();
  ASSERT_TRUE(save(run, 1));
  for (const char* failing : {"part.created=error:ENOSPC@2", "part.data_synced=error:EIO@3",
                              "part.header_written=error@2", "part.header_synced=error@3",
                              "commit.sealed=error@1", "commit.sealed=error@2"}) {
    SCOPED_TRACE(failing);
    ASSERT_TRUE(fail_points::arm(failing));
    EXPECT_FALSE(save(run, 2));
    fail_points::disarm();
    run.wait();
    EXPECT_EQ(list_checkpoints(dir_.path() / "run")->size(), 1U);
  }
  ASSERT_TRUE(save(run, 3));
  expect_newest(3);
}

TEST_P(SeveralFilesFaults, ADeathAtAnyOfThemLeavesTheCheckpointBefore) {
  {
    Checkpointer run = open();
    ASSERT_TRUE(save(run, 1));
  }
  for (const char* dying : {"part.header_synced=kill@2", "commit.sealed=kill@2"}) {
    SCOPED_TRACE(dying);
    const pid_t child = ::fork();
    if (child == 0) {
      std::ignore = fail_points::arm(dying);
      Checkpointer run = open();
      std::ignore = run.continue_from(run.candidates()->front());
      std::ignore = save(run, 2);
      ::_exit(1);
    }
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    expect_newest(1);
  }
}

void flip_one_bit(const fs::path& file, std::uintmax_t offset) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(static_cast<std::streamoff>(offset));
  const char byte = static_cast<char>(stream.get() ^ 4);
  stream.seekp(static_cast<std::streamoff>(offset));
  stream.put(byte);
}

// In the header of each, and in the data of those that have some.
TEST_P(SeveralFilesFaults, AFlippedBitInAnyOfThemIsFound) {
  Checkpointer run = open();
  ASSERT_TRUE(save(run, 1));
  ASSERT_TRUE(save(run, 2));
  const CheckpointInfo newest = run.candidates()->front();
  const std::vector<fs::path> files = files_of_newest();
  for (std::size_t file = 0; file < files.size(); ++file) {
    SCOPED_TRACE(files[file]);
    const std::uintmax_t last = fs::file_size(files[file]) - 1;
    for (const std::uintmax_t offset : {std::uintmax_t{1'000}, last}) {
      flip_one_bit(files[file], offset);
      const auto faults = verify_checkpoint(newest);
      ASSERT_TRUE(faults.has_value());
      ASSERT_EQ(faults->size(), 1U);
      EXPECT_EQ(faults->front().file, files[file].filename());
      const bool is_data = offset == last && file + 1 < files.size();
      EXPECT_EQ(faults->front().blocks.size(), is_data ? 1U : 0U);
      EXPECT_EQ(faults->front().tensors.empty(), !is_data);
      flip_one_bit(files[file], offset);
    }
  }
  EXPECT_TRUE(verify_checkpoint(newest)->empty());
  fs::remove(files_of_newest().at(1));
  State found(0);
  const auto report = restore_newest(run, found.targets());
  ASSERT_TRUE(report.has_value()) << report.error().message();
  EXPECT_EQ(report->restored.step, 1U);
  EXPECT_TRUE(found == State(1));
}

// The early capture knows nothing of the file that only the tree needs. A ring takes none.
TEST_P(SeveralFiles, ACaptureThatBeganEarlyIsUsed) {
  {
    Checkpointer run = open();
    const State state(1);
    const auto began = run.begin_capture(state.table());
    ASSERT_TRUE(began.has_value());
    EXPECT_EQ(*began, !GetParam());
    for (const std::uint32_t guard : {1U, 2U}) run.release(guard);
    const auto handle = run.save({.step = 1, .tensors = state.table(), .objects = tree_of(1)});
    ASSERT_TRUE(handle.has_value());
    EXPECT_EQ((*handle)->status().early, !GetParam());
    ASSERT_TRUE((*handle)->wait(Level::kDurable, kDeadline));
  }
  EXPECT_EQ(files_of_newest().size(), kFiles);
  expect_newest(1);
}

std::string name_of(const testing::TestParamInfo<bool>& test) {
  return test.param ? "InARing" : "WholeImage";
}
INSTANTIATE_TEST_SUITE_P(Arenas, SeveralFiles, testing::Bool(), name_of);
INSTANTIATE_TEST_SUITE_P(Arenas, SeveralFilesFaults, testing::Bool(), name_of);

}  // namespace
}  // namespace deepfreeze::several_files_test

// Tensors that do not change are written once, by the public interface on the real file system.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <random>
#include <set>

#include "base/fail_point.h"
#include "deepfreeze/deepfreeze.h"
#include "support/number_from.h"
#include "support/scoped_dir.h"
#include "support/thread_ranks.h"

namespace deepfreeze::cold_files_test {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kDeadline{60'000};  // for waits that must not hang
constexpr std::size_t kFrozen = 4'500'000;              // floats: 18 MB
constexpr std::size_t kTrained = 100'000;

struct State {
  std::vector<float> frozen = first_frozen();
  std::vector<float> trained = std::vector<float>(kTrained);
  void train(std::uint64_t step) {
    for (std::size_t i = 0; i < kTrained; ++i) trained[i] = static_cast<float>(i + step);
  }
  [[nodiscard]] TensorTable table() const {
    return {tensor("base", frozen), tensor("adapter", trained)};
  }
  std::vector<RestoreTarget> targets() {
    return {{"base", std::as_writable_bytes(std::span(frozen))},
            {"adapter", std::as_writable_bytes(std::span(trained))}};
  }
  // By the library's function: a loop of ours is not optimized, and this is most of the time.
  bool operator==(const State& other) const {
    return is_same(frozen, other.frozen) && is_same(trained, other.trained);
  }
  static bool is_same(const std::vector<float>& one, const std::vector<float>& other) {
    return one.size() == other.size() &&
           std::memcmp(one.data(), other.data(), one.size() * sizeof(float)) == 0;
  }
  // Other bytes than any saved ones.
  void spoil() { std::memset(frozen.data(), 0xff, frozen.size() * sizeof(float)); }

 private:
  static const std::vector<float>& first_frozen() {
    static const std::vector<float> made = [] {
      std::vector<float> values(kFrozen);
      for (std::size_t i = 0; i < kFrozen; ++i) values[i] = static_cast<float>(i % 100'003);
      return values;
    }();
    return made;
  }
  static Tensor tensor(std::string key, const std::vector<float>& values) {
    return {.spec = {.key = std::move(key), .dtype = DType::kF32, .shape = {values.size()}},
            .data = std::as_bytes(std::span(values)),
            .guard = 1};
  }
};

class ColdFilesTest : public testing::Test {
 protected:
  ~ColdFilesTest() override { fail_points::disarm(); }

  [[nodiscard]] Checkpointer open(Options options = {}) const {
    auto opened = Checkpointer::open(run_, options);
    EXPECT_TRUE(opened.has_value()) << opened.error().message();
    return *std::move(opened);
  }
  SaveStatus save(Checkpointer& run, std::uint64_t step) {
    state_.train(step);
    return save_as_it_is(run, step);
  }
  SaveStatus save_as_it_is(Checkpointer& run, std::uint64_t step) {
    const auto handle = run.save({.step = step, .tensors = state_.table()});
    EXPECT_TRUE(handle.has_value()) << handle.error().message();
    run.fence(1);
    const Status done = (*handle)->wait(Level::kDurable, kDeadline);
    EXPECT_TRUE(done) << done.error().message();
    return (*handle)->status();
  }
  // The first saves find out; the next two write the two copies.
  std::uint64_t warm_up(Checkpointer& run) {
    std::uint64_t step = 1;
    while (step < 20 && save(run, step).bytes_shared == 0) ++step;
    return step;
  }
  [[nodiscard]] std::vector<CheckpointInfo> all() const { return *list_checkpoints(run_); }
  [[nodiscard]] std::optional<CheckpointInfo> info_of(std::uint64_t step) const {
    for (const CheckpointInfo& info : all()) {
      if (info.step == step) return info;
    }
    return std::nullopt;
  }
  [[nodiscard]] struct stat cold_file(std::uint64_t step) const {
    struct stat status = {};
    const fs::path file = fs::path(info_of(step)->path) / "rank-00000-of-00001-1-of-2.safetensors";
    EXPECT_EQ(::stat(file.c_str(), &status), 0) << file;
    return status;
  }
  void expect_step(std::uint64_t step, const State& expected) const {
    State found;
    found.spoil();
    const auto opened = open_checkpoint(*info_of(step));
    ASSERT_TRUE(opened.has_value()) << opened.error().message();
    const Status read = opened->read(found.targets());
    ASSERT_TRUE(read) << read.error().message();
    EXPECT_TRUE(found == expected) << step;
    EXPECT_TRUE(verify_checkpoint(*info_of(step))->empty());
  }

  // Changes a byte of the file on the disk by these bits; 0: puts the byte back that it had.
  void flip(std::uint64_t step, std::uint64_t at, int bits) {
    const fs::path path = fs::path(info_of(step)->path) / "rank-00000-of-00001-1-of-2.safetensors";
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    ASSERT_TRUE(file.good());
    char byte = 0;
    file.seekg(static_cast<std::streamoff>(at)).get(byte);
    if (bits != 0) good_byte_ = byte;
    file.seekp(static_cast<std::streamoff>(at));
    file.put(bits == 0 ? good_byte_ : static_cast<char>(byte ^ bits));
  }

  char good_byte_ = 0;
  ScopedDir dir_;
  const fs::path run_ = dir_.path() / "run";
  State state_;
};

TEST_F(ColdFilesTest, AreWrittenTwiceAndLinkedFromThenOn) {
  Checkpointer run = open();
  const std::uint64_t first = warm_up(run);
  EXPECT_LE(first, 6U);
  std::set<ino_t> inodes;
  for (std::uint64_t step = first + 1; step <= first + 6; ++step) {
    const SaveStatus status = save(run, step);
    EXPECT_EQ(status.bytes_shared, 4 * kFrozen);
    EXPECT_LT(status.bytes_written, 4 * kTrained + 100'000);
    const struct stat file = cold_file(step);
    inodes.insert(file.st_ino);
    EXPECT_EQ(file.st_mode & 0222U, 0U) << "a writer in place would change many checkpoints";
  }
  EXPECT_EQ(inodes.size(), 2U) << "two copies, in turn";
  for (const auto& info : all()) {
    State expected;
    expected.train(info.step);
    expect_step(info.step, expected);
  }
}

TEST_F(ColdFilesTest, ATensorThatChangesIsWrittenAtOnceAndOlderStepsKeepTheirs) {
  Checkpointer run = open();
  const std::uint64_t before = warm_up(run);
  const State old = state_;
  state_.frozen[kFrozen / 2] = -7;
  const SaveStatus woken = save(run, before + 1);
  EXPECT_EQ(woken.bytes_shared, 0U);
  EXPECT_GT(woken.bytes_written, 4 * kFrozen);
  expect_step(before + 1, state_);
  expect_step(before, old);
  const State changed = state_;
  EXPECT_EQ(save(run, before + 2).bytes_shared, 0U);
  EXPECT_TRUE(
      fs::exists(fs::path(info_of(before + 2)->path) / "rank-00000-of-00001-0-of-1.safetensors"))
      << "nothing is cold any more";
  expect_step(before + 1, changed);
  expect_step(before + 2, state_);
}

TEST_F(ColdFilesTest, OutliveTheCheckpointsThatHadThemFirst) {
  Checkpointer run = open({.keep = {.last = 2, .every = {}, .best = {}}});
  const std::uint64_t first = warm_up(run);
  for (std::uint64_t step = first + 1; step <= first + 5; ++step) {
    EXPECT_GT(save(run, step).bytes_shared, 0U) << step;
  }
  EXPECT_TRUE(run.close());
  EXPECT_EQ(all().size(), 2U);
  EXPECT_EQ(cold_file(first + 5).st_nlink, 1U);
  expect_step(first + 5, state_);
}

TEST_F(ColdFilesTest, AreWrittenAnewIfEveryAttemptThatHadThemIsGone) {
  Checkpointer run = open();
  const std::uint64_t first = warm_up(run);
  for (const auto& info : all()) fs::remove_all(info.path);
  EXPECT_EQ(save(run, first + 1).bytes_shared, 0U);
  EXPECT_GT(save(run, first + 2).bytes_shared, 0U);
  expect_step(first + 2, state_);
}

TEST_F(ColdFilesTest, AreLinkedFromOlderCheckpointsIfTheNewestAreGone) {
  Checkpointer run = open();
  std::uint64_t last = warm_up(run);
  for (int more = 0; more < 4; ++more) save(run, ++last);
  for (const std::uint64_t step : {last, last - 1}) fs::remove_all(info_of(step)->path);
  EXPECT_GT(save(run, last + 1).bytes_shared, 0U);
  EXPECT_GT(save(run, last + 2).bytes_shared, 0U);
  expect_step(last + 2, state_);
}

TEST_F(ColdFilesTest, ASaveThatFailsLeavesTheNextOneWhole) {
  Checkpointer run = open();
  const std::uint64_t first = warm_up(run);
  for (const char* point :
       {"commit.sealed=error@1", "commit.manifest_written=error@1", "part.created=error@1",
        "commit.seal_synced=error@1", "commit.directory_made=error@1"}) {
    ASSERT_TRUE(fail_points::arm(point));
    state_.train(99);
    state_.frozen[3] -= 1;  // and stays so: the next save must not link the old bytes
    const auto handle = run.save({.step = first + 1, .tensors = state_.table()});
    run.fence(1);
    EXPECT_FALSE((*handle)->wait(Level::kDurable, kDeadline)) << point;
    fail_points::disarm();
    save(run, first + 2);
    expect_step(first + 2, state_);
    fs::remove_all(info_of(first + 2)->path);
  }
}

TEST_F(ColdFilesTest, OneThatIsDamagedFailsOneSaveAtMost) {
  Checkpointer run = open();
  const std::uint64_t first = warm_up(run);
  for (const std::uint64_t step : {first, first - 1}) flip(step, 700, 1);  // in both headers
  state_.train(50);
  const auto handle = run.save({.step = first + 1, .tensors = state_.table()});
  run.fence(1);
  EXPECT_FALSE((*handle)->wait(Level::kDurable, kDeadline));
  EXPECT_EQ(save(run, first + 2).bytes_shared, 0U);
  expect_step(first + 2, state_);
}

TEST_F(ColdFilesTest, AreSharedAlsoIfOneCheckpointStays) {
  Checkpointer run = open({.keep = {.last = 1, .every = {}, .best = {}}});
  const std::uint64_t first = warm_up(run);
  for (std::uint64_t step = first + 1; step <= first + 4; ++step) {
    EXPECT_GT(save(run, step).bytes_shared, 0U) << step;
  }
  expect_step(first + 4, state_);
}

TEST_F(ColdFilesTest, AreNotWorthARing) {
  // The image alone fits, and one more slab does not.
  Checkpointer run = open({.arena_bytes_max = 4 * (kFrozen + kTrained) + 4096});
  for (std::uint64_t step = 1; step <= 6; ++step) EXPECT_EQ(save(run, step).bytes_shared, 0U);
  expect_step(6, state_);
}

TEST_F(ColdFilesTest, AreWrittenAnewIfALinkIsRefused) {
  Checkpointer run = open();
  const std::uint64_t first = warm_up(run);
  ASSERT_TRUE(fail_points::arm("save.cold_linked=error"));
  EXPECT_EQ(save(run, first + 1).bytes_shared, 0U);
  fail_points::disarm();
  expect_step(first + 1, state_);
  EXPECT_GT(save(run, first + 2).bytes_shared, 0U);
  EXPECT_GT(save(run, first + 3).bytes_shared, 0U);
  expect_step(first + 3, state_);
}

// Each of the two copies on the disk stands for the other. DEEPFREEZE_COLD_FLIPS: how many bits.
TEST_F(ColdFilesTest, AreReadFromTheOtherCopyIfOneHasRotted) {
  std::uint64_t last = 0;
  {
    Checkpointer run = open();
    last = warm_up(run);
    for (int more = 0; more < 3; ++more) save(run, ++last);
  }
  const std::random_device::result_type seed = std::random_device{}();
  std::mt19937_64 random(seed);
  const auto size = static_cast<std::uint64_t>(cold_file(last).st_size);
  const std::uint64_t trials = number_from("DEEPFREEZE_COLD_FLIPS", 12);
  for (std::uint64_t trial = 0; trial < trials; ++trial) {
    // The header, too.
    const std::uint64_t at = trial % 3 == 0 ? random() % 4096 : random() % size;
    flip(last, at, 1 << random() % 8);
    for (const std::uint64_t step : {last, last - 1, last - 2}) {
      State found;
      found.spoil();
      const auto opened = open_checkpoint(*info_of(step));
      ASSERT_TRUE(opened.has_value()) << at << ": " << opened.error().message();
      const Status read = opened->read(found.targets());
      ASSERT_TRUE(read) << at << ": " << read.error().message();
      EXPECT_TRUE(State::is_same(found.frozen, state_.frozen)) << at;
      EXPECT_EQ(opened->mended().empty(), step == last - 1) << "the other copy is good";
    }
    flip(last, at, 0);
  }
  std::cout << "cold flips: " << trials << ", each in one of two copies, seed " << seed << "\n";
}

TEST_F(ColdFilesTest, RottenInBothCopiesCostTheCheckpoint) {
  Checkpointer run = open();
  const std::uint64_t last = warm_up(run) + 1;
  save(run, last);
  flip(last, 9'000'000, 1);
  flip(last - 1, 9'000'000, 1);
  State found;
  const auto opened = open_checkpoint(*info_of(last));
  ASSERT_TRUE(opened.has_value());
  const Status read = opened->read(found.targets());
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code(), ErrorCode::kCorrupt);
  EXPECT_TRUE(read.error().message().contains("tensor base")) << read.error().message();
}

TEST_F(ColdFilesTest, AreNotMadeIfTheOptionIsOff) {
  Checkpointer run = open({.reuse_unchanged = false});
  for (std::uint64_t step = 1; step <= 8; ++step) EXPECT_EQ(save(run, step).bytes_shared, 0U);
}

TEST_F(ColdFilesTest, HaveAsManyBytesAsTheOptionSaysAtLeast) {
  constexpr std::uint64_t kBytes = 40'000;
  state_.frozen.resize(kBytes / sizeof(float));
  state_.trained.resize(1'000);
  for (const std::uint64_t bytes_min : {kBytes + 1, kBytes}) {
    fs::remove_all(run_);
    Checkpointer run = open({.reuse_bytes_min = bytes_min});
    SaveStatus status;
    for (std::uint64_t step = 1; step <= 8; ++step) {
      state_.trained.front() = static_cast<float>(step);
      status = save_as_it_is(run, step);
    }
    EXPECT_EQ(status.bytes_shared, bytes_min == kBytes ? kBytes : 0);
  }
}

TEST_F(ColdFilesTest, AreReadByANewProcessThatGoesOn) {
  std::uint64_t last = 0;
  {
    Checkpointer run = open();
    last = warm_up(run);
  }
  Checkpointer run = open();
  State found;
  const auto report = restore_newest(run, found.targets());
  ASSERT_TRUE(report.has_value()) << report.error().message();
  EXPECT_EQ(report->restored.step, last);
  EXPECT_TRUE(found == state_);
  EXPECT_EQ(save(run, last + 1).bytes_shared, 0U) << "nothing is known of older checkpoints";
  expect_step(last + 1, state_);
}

// A frozen tensor that both have: each writes its share of it, and then shares that file.
TEST_F(ColdFilesTest, OfSeveralRanksAreEachRanksOwn) {
  constexpr std::size_t kFloats = 10'000'000;
  std::vector<float> frozen(kFloats);
  for (std::size_t i = 0; i < kFloats; ++i) frozen[i] = static_cast<float>(i % 100'003);
  ThreadRanks(2).run([&](std::uint32_t rank, const std::shared_ptr<RankGroup>& group) {
    Options options;
    options.ranks = group;
    Checkpointer run = open(options);
    std::uint64_t shared = 0;
    for (std::uint64_t step = 1; step <= 8; ++step) {
      const std::vector<float> own(100, static_cast<float>(100 * rank + step));
      const auto tensor = [](std::string key, const std::vector<float>& values) {
        return Tensor{
            .spec = {.key = std::move(key), .dtype = DType::kF32, .shape = {values.size()}},
            .data = std::as_bytes(std::span(values))};
      };
      const auto handle = run.save(
          {.step = step,
           .tensors = {tensor("frozen", frozen), tensor("own" + std::to_string(rank), own)}});
      ASSERT_TRUE(handle) << handle.error().message();
      const Status saved = (*handle)->wait(Level::kDurable, kDeadline);
      ASSERT_TRUE(saved) << saved.error().message();
      shared = (*handle)->status().bytes_shared;
    }
    EXPECT_EQ(shared, 4 * kFloats / 2) << "rank " << rank;
  });
  const auto opened = open_checkpoint(all().front());
  ASSERT_TRUE(opened) << opened.error().message();
  std::vector<float> found(kFloats);
  std::vector<float> own(100);
  const std::vector<RestoreTarget> targets = {{"frozen", std::as_writable_bytes(std::span(found))},
                                              {"own1", std::as_writable_bytes(std::span(own))}};
  const Status read = opened->read(targets);
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_TRUE(found == frozen);
  EXPECT_EQ(own, std::vector<float>(100, 108));
  EXPECT_TRUE(verify_checkpoint(all().front())->empty());
}

}  // namespace
}  // namespace deepfreeze::cold_files_test

// The audit of replicas through the public interface: ranks are threads here.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "deepfreeze/deepfreeze.h"
#include "format/records.h"
#include "support/number_from.h"
#include "support/scoped_dir.h"
#include "support/thread_ranks.h"

namespace deepfreeze {
namespace {

using std::chrono::milliseconds;
using Group = std::shared_ptr<RankGroup>;

constexpr milliseconds kDeadline{60'000};
constexpr std::uint32_t kSaves = 4;
constexpr std::size_t kWeights = 5'000'003;

// Tensors that all ranks have alike, and one that only one rank has.
struct State {
  std::vector<std::uint8_t> weights = std::vector<std::uint8_t>(kWeights, 3);
  std::vector<std::uint8_t> bias = std::vector<std::uint8_t>(1'001, 5);
  std::vector<std::uint8_t> own;

  explicit State(std::uint32_t rank) : own(70'000, static_cast<std::uint8_t>(rank)) {}

  [[nodiscard]] TensorTable table(std::uint32_t rank, std::uint32_t guard = 0) const {
    const auto of = [guard](std::string key, const std::vector<std::uint8_t>& bytes) {
      return Tensor{.spec = {.key = std::move(key), .dtype = DType::kU8, .shape = {bytes.size()}},
                    .data = std::as_bytes(std::span(bytes)),
                    .guard = guard};
    };
    return {of("w", weights), of("@rank" + std::to_string(rank), own), of("b", bias)};
  }
};

class ReplicaAuditTest : public testing::Test {
 public:
  static Checkpointer open(const std::filesystem::path& run_dir, const Group& group,
                           Options options = {.audit_saves = kSaves}) {
    options.ranks = group;
    auto opened = Checkpointer::open(run_dir, std::move(options));
    EXPECT_TRUE(opened) << opened.error().message();
    return std::move(*opened);
  }

  // The divergences that a durable save of that step found.
  static std::vector<Divergence> save(Checkpointer& run, std::uint64_t step, TensorTable table) {
    const auto handle = run.save({.step = step, .tensors = std::move(table)});
    EXPECT_TRUE(handle) << handle.error().message();
    const Status saved = handle.value()->wait(Level::kDurable, kDeadline);
    EXPECT_TRUE(saved) << saved.error().message();
    return (*handle)->status().diverged;
  }

 protected:
  [[nodiscard]] Checkpointer open(const Group& group, Options options) const {
    return open(dir_.path() / "run", group, std::move(options));
  }

  ScopedDir dir_;
};

struct Flip {
  std::uint32_t rank = 0;
  std::size_t byte = 0;  // of the weights
  int bit = 0;
};

// Three ranks, one of which has one bit changed after the first save. All hear of it once.
void expect_named(const std::filesystem::path& run_dir, const Flip& flip) {
  ThreadRanks(3).run([&](std::uint32_t rank, const Group& group) {
    Checkpointer run = ReplicaAuditTest::open(run_dir, group);
    State state(rank);
    EXPECT_TRUE(ReplicaAuditTest::save(run, 1, state.table(rank)).empty());
    if (rank == flip.rank) state.weights[flip.byte] ^= static_cast<std::uint8_t>(1 << flip.bit);
    std::vector<Divergence> found;
    for (std::uint64_t step = 2; step < 2 + kSaves; ++step) {
      const auto diverged = ReplicaAuditTest::save(run, step, state.table(rank));
      found.insert(found.end(), diverged.begin(), diverged.end());
    }
    EXPECT_EQ(found, (std::vector<Divergence>{{"w", {flip.rank}}}));
  });
  std::vector<Divergence> listed;
  const auto infos = list_checkpoints(run_dir);
  for (const CheckpointInfo& info : *infos) {
    EXPECT_TRUE(verify_checkpoint(info).value().empty());
    listed.insert(listed.end(), info.diverged.begin(), info.diverged.end());
  }
  EXPECT_EQ(listed, (std::vector<Divergence>{{"w", {flip.rank}}}));
}

TEST_F(ReplicaAuditTest, NamesAFlippedBitWithinSoManySaves) {
  const std::uint64_t flips = number_from("DEEPFREEZE_AUDIT_FLIPS", 3);
  const auto seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  std::uint64_t named = 0;
  for (std::uint64_t i = 0; i < flips; ++i) {
    const Flip flip{static_cast<std::uint32_t>(random() % 3), random() % kWeights,
                    static_cast<int>(random() % 8)};
    expect_named(dir_.path() / std::to_string(i), flip);
    named += HasFailure() ? 0 : 1;
  }
  std::printf("audit: %lu of %lu flipped bits named within %u saves, seed %u\n", named, flips,
              kSaves, seed);
}

TEST_F(ReplicaAuditTest, OfTwoNobodyKnowsWhichIsRight) {
  ThreadRanks(2).run([&](std::uint32_t rank, const Group& group) {
    Checkpointer run = open(group, {.audit_saves = 1});
    State state(rank);
    EXPECT_TRUE(save(run, 1, state.table(rank)).empty());
    if (rank == 0) state.bias[1'000] ^= 0x80;
    EXPECT_EQ(save(run, 2, state.table(rank)), (std::vector<Divergence>{{"b", {0, 1}}}));
  });
}

TEST_F(ReplicaAuditTest, WhatIsCapturedLaterIsComparedAsItWas) {
  ThreadRanks(2).run([&](std::uint32_t rank, const Group& group) {
    Checkpointer run = open(group, {.profile = Profile::kLatency, .audit_saves = 1});
    State state(rank);
    for (std::uint64_t step = 1; step < 4; ++step) {
      const auto handle = run.save({.step = step, .tensors = state.table(rank, 1)});
      ASSERT_TRUE(handle && *handle);
      run.fence();
      std::ranges::fill(state.weights, static_cast<std::uint8_t>(10 * step + rank));
      ASSERT_TRUE((*handle)->wait(Level::kDurable, kDeadline));
      std::ranges::fill(state.weights, static_cast<std::uint8_t>(step));
      EXPECT_TRUE((*handle)->status().diverged.empty());
    }
  });
}

TEST_F(ReplicaAuditTest, GoesOnInACaptureThatBeganEarly) {
  ThreadRanks(2).run([&](std::uint32_t rank, const Group& group) {
    Checkpointer run = open(group, {.profile = Profile::kLatency, .audit_saves = 2});
    State state(rank);
    EXPECT_TRUE(save(run, 1, state.table(rank, 1)).empty());
    if (rank == 1) state.weights[0] ^= 1;
    std::size_t found = 0;
    for (std::uint64_t step = 2; step < 4; ++step) {
      const TensorTable table = state.table(rank, 1);
      ASSERT_TRUE(run.begin_capture(table).value());
      run.release(1);
      const auto handle = run.save({.step = step, .tensors = table});
      ASSERT_TRUE(handle && *handle);
      ASSERT_TRUE((*handle)->wait(Level::kDurable, kDeadline));
      EXPECT_TRUE((*handle)->status().early);
      found += (*handle)->status().diverged.size();
    }
    EXPECT_EQ(found, 1U);
  });
}

// After a resume, of an older step too, it is known which bytes the next save looks at.
TEST_F(ReplicaAuditTest, ResumesWithACaptureThatBeganEarly) {
  ThreadRanks(2).run([&](std::uint32_t rank, const Group& group) {
    const Options options{.profile = Profile::kLatency, .audit_saves = 7};
    State state(rank);
    const TensorTable table = state.table(rank, 1);
    {
      Checkpointer run = open(group, options);
      for (std::uint64_t step = 1; step < 4; ++step) EXPECT_TRUE(save(run, step, table).empty());
    }
    const auto expect_early = [&](Checkpointer& run, std::uint64_t step) {
      ASSERT_TRUE(run.prewarm({.tensors = table}));
      ASSERT_TRUE(run.begin_capture(table).value());
      run.release(1);
      const auto handle = run.save({.step = step, .tensors = table});
      ASSERT_TRUE(handle && *handle);
      ASSERT_TRUE((*handle)->wait(Level::kDurable, kDeadline));
      EXPECT_TRUE((*handle)->status().early);
    };
    {
      Checkpointer run = open(group, options);
      ASSERT_TRUE(restore_newest(
          run, std::array{RestoreTarget{"w", std::as_writable_bytes(std::span(state.weights))}}));
      expect_early(run, 4);
    }
    Checkpointer run = open(group, options);
    ASSERT_TRUE(run.continue_from(run.candidates()->back()));
    expect_early(run, 2);
  });
}

// If one rank captured other bytes than the save then compares, that is no difference.
TEST_F(ReplicaAuditTest, ACaptureThatBeganForAnotherSaveIsMadeAnew) {
  ThreadRanks(2).run([&](std::uint32_t rank, const Group& group) {
    const Options options{.profile = Profile::kLatency, .audit_saves = 2};
    State state(rank);
    std::ranges::generate(state.weights, std::minstd_rand(1));
    TensorTable table = state.table(rank, 1);
    table.front().guard = 0;  // the weights: each save looks at three pieces, of other lengths
    table.pop_back();
    {
      Checkpointer run = open(group, options);
      EXPECT_TRUE(save(run, 1, table).empty());
    }
    Checkpointer run = open(group, options);  // without saying from which point it continues
    ASSERT_TRUE(run.prewarm({.tensors = table}));
    if (rank == 0) {
      EXPECT_TRUE(run.begin_capture(table).value());
      run.release(1);
    }
    const auto handle = run.save({.step = 2, .tensors = table});
    ASSERT_TRUE(handle && *handle);
    ASSERT_TRUE((*handle)->wait(Level::kDurable, kDeadline));
    EXPECT_FALSE((*handle)->status().early);
    EXPECT_TRUE((*handle)->status().diverged.empty());
  });
}

TEST_F(ReplicaAuditTest, WorksThroughARingBehindTraining) {
  ThreadRanks(2).run([&](std::uint32_t rank, const Group& group) {
    Options options{.profile = Profile::kLatency, .audit_saves = 1};
    options.arena_bytes_max = 8 << 20;
    Checkpointer run = open(group, options);
    State state(rank);
    state.weights.resize(40'000'000, 9);
    for (std::uint64_t step = 1; step < 3; ++step) {
      const auto handle = run.save({.step = step, .tensors = state.table(rank, 1)});
      ASSERT_TRUE(handle && *handle);
      run.fence();
      ASSERT_TRUE((*handle)->wait(Level::kDurable, kDeadline));
      EXPECT_EQ((*handle)->status().diverged.size(), step - 1);
      if (rank == 1) state.weights[39'999'999] ^= 1;
    }
  });
}

TEST_F(ReplicaAuditTest, WorksThroughARing) {
  ThreadRanks(2).run([&](std::uint32_t rank, const Group& group) {
    Options options{.audit_saves = 1};
    options.arena_bytes_max = 8 << 20;
    Checkpointer run = open(group, options);
    State state(rank);
    state.weights.resize(40'000'000, 9);
    EXPECT_TRUE(save(run, 1, state.table(rank)).empty());
    if (rank == 1) state.weights[33'333'333] ^= 1;
    EXPECT_EQ(save(run, 2, state.table(rank)), (std::vector<Divergence>{{"w", {0, 1}}}));
  });
}

TEST_F(ReplicaAuditTest,
       ComparesShardsWithTheirOwnReplicasOnly) {  // hybrid: 2 replicas of 2 shards
  ThreadRanks(4).run([&](std::uint32_t rank, const Group& group) {
    Checkpointer run = open(group, {.audit_saves = 1});
    std::vector<std::uint8_t> half(2'000'000, static_cast<std::uint8_t>(rank % 2));
    const std::uint64_t first = rank % 2 * half.size();
    const TensorTable table = {{.spec = {.key = "w",
                                         .dtype = DType::kU8,
                                         .shape = {half.size()},
                                         .box = Box{{first}, {half.size()}},
                                         .global_shape = {2 * half.size()}},
                                .data = std::as_bytes(std::span(half))}};
    EXPECT_TRUE(save(run, 1, table).empty());
    if (rank == 3) half.back() ^= 4;
    EXPECT_EQ(save(run, 2, table), (std::vector<Divergence>{{"w", {1, 3}}}));
  });
}

TEST_F(ReplicaAuditTest, IsLeftOutWhereItIsNotWanted) {
  ThreadRanks(2).run([&](std::uint32_t rank, const Group& group) {
    Checkpointer run = open(group, {.audit_saves = rank == 0 ? 0U : 1U});
    State state(rank);
    EXPECT_TRUE(save(run, 1, state.table(rank)).empty());
    if (rank == 0) state.weights[1] ^= 1;
    EXPECT_TRUE(save(run, 2, state.table(rank)).empty()) << "rank 0's choice counts";
  });
}

}  // namespace
}  // namespace deepfreeze

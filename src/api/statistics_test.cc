// The least and the greatest value of each tensor, and the retention of a run that diverged.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <numeric>
#include <random>

#include "deepfreeze/deepfreeze.h"
#include "format/shard_header.h"
#include "manifest/run_directory.h"
#include "manifest/sealed_parts.h"
#include "save/range_scan.h"
#include "save/save_plan.h"
#include "storage/posix_vfs.h"
#include "support/scoped_dir.h"

namespace deepfreeze::statistics_test {
namespace {

constexpr std::chrono::milliseconds kDeadline{60'000};  // for waits that must not hang
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr std::size_t kLarge = 5 * kSlabBytes / sizeof(float) / 2;  // two slabs and a half
constexpr std::uint64_t kRingBytes = 8 << 20;

// A tensor of several slabs, a small one, counters, and one that is empty.
struct State {
  std::vector<float> large = std::vector<float>(kLarge);
  std::vector<float> small = {1.5F, -2.5F, 0.0F};
  std::vector<std::int32_t> counters = {1, 2, 3, 4, 5};

  explicit State(std::uint64_t step) {
    for (std::size_t i = 0; i < kLarge; ++i) large[i] = static_cast<float>(i % 1000 + step);
  }
  [[nodiscard]] TensorTable table() const {
    const auto tensor = [](std::string key, DType dtype, const auto& values, std::uint32_t guard) {
      return Tensor{.spec = {.key = std::move(key), .dtype = dtype, .shape = {values.size()}},
                    .data = std::as_bytes(std::span(values)),
                    .guard = guard};
    };
    return {tensor("counters", DType::kI32, counters, 0), tensor("large", DType::kF32, large, 1),
            tensor("none", DType::kF64, std::vector<double>(), 0),
            tensor("small", DType::kF32, small, 0)};
  }
};

class StatisticsTest : public testing::Test {
 protected:
  Checkpointer open(Options options) {
    options.statistics = true;
    auto opened = Checkpointer::open(run(), std::move(options));
    EXPECT_TRUE(opened.has_value()) << opened.error().message();
    return std::move(*opened);
  }
  [[nodiscard]] std::filesystem::path run() const { return dir_.path() / "run"; }

  std::optional<std::uint64_t> save(Checkpointer& to, std::uint64_t step, const State& state) {
    const auto handle = to.save({.step = step, .tensors = state.table()});
    EXPECT_TRUE(handle.has_value() && handle->has_value());
    const Status durable = (*handle)->wait(Level::kDurable, kDeadline);
    EXPECT_TRUE(durable.has_value()) << durable.error().message();
    return (*handle)->status().non_finite;
  }
  // The ranges out of the file's header, by key.
  std::map<std::string, ValueRange> stored_ranges() {
    const auto vfs = open_posix_vfs(run());
    const RunListing listing = *read_run(**vfs);
    const Manifest& manifest = *listing.attempts.back().manifest;
    const std::string directory = attempt_dir_name(listing.attempts.back().name);
    const ShardHeader header =
        read_part_header(**vfs, directory + "/" + manifest.files[0].name)->header;
    EXPECT_EQ(non_finite_values(header), manifest.non_finite);
    std::map<std::string, ValueRange> ranges;
    auto range = header.ranges.value().begin();
    for (const ShardEntry& entry : header.entries) {
      if (is_floating_point(entry.spec.dtype)) ranges[entry.spec.key] = *range++;
    }
    return ranges;
  }
  std::vector<std::uint64_t> steps() {
    std::vector<std::uint64_t> all;
    const auto listed = list_checkpoints(run());
    for (const CheckpointInfo& info : listed.value()) all.push_back(info.step);
    return all;
  }

  ScopedDir dir_;
};

TEST_F(StatisticsTest, AreThoseOfTheBytesThatWereSaved) {
  for (const auto& arena : {std::optional<std::size_t>(), std::optional<std::size_t>(kRingBytes)}) {
    Checkpointer checkpointer = open({.arena_bytes_max = arena});
    State state(7);
    state.large[kLarge - 1] = -3;
    state.large[kLarge / 2] = kNaN;
    state.small[0] = -std::numeric_limits<float>::infinity();
    EXPECT_EQ(save(checkpointer, arena ? 2 : 1, state), 2U);
    const auto ranges = stored_ranges();
    ASSERT_EQ(ranges.size(), 3U) << "whole numbers have none";
    EXPECT_EQ(ranges.at("large"), (ValueRange{-3, 1006, kLarge - 1, 1}));
    EXPECT_EQ(ranges.at("small"), (ValueRange{-2.5, 0, 2, 1}));
    EXPECT_EQ(ranges.at("none"), ValueRange{});
    EXPECT_EQ(list_checkpoints(run())->front().non_finite, 2U);
  }
}

TEST_F(StatisticsTest, WhoDoesNotAskGetsNone) {
  auto checkpointer = Checkpointer::open(run(), {});
  EXPECT_EQ(save(*checkpointer, 1, State(1)), std::nullopt);
  EXPECT_EQ(list_checkpoints(run())->front().non_finite, std::nullopt);
}

TEST_F(StatisticsTest, WhatDivergedDoesNotPushOutTheLastThatDidNot) {
  Checkpointer checkpointer = open({.keep = {.last = 1, .every = {}, .best = {}}});
  for (std::uint64_t step = 1; step <= 4; ++step) {
    State state(step);
    if (step > 2) state.large[step] = kNaN;
    EXPECT_EQ(save(checkpointer, step, state), step > 2 ? 1U : 0U);
  }
  EXPECT_TRUE(checkpointer.close());
  EXPECT_EQ(steps(), (std::vector<std::uint64_t>{4, 2}));
}

// Tensors of all sizes in several files, the slabs in any order.
TEST(RangeScanTest, FindsWhatALookAtTheWholeFinds) {
  constexpr std::uint32_t kSeed = 20261122;
  std::mt19937 random(kSeed);
  std::vector<std::vector<float>> values;
  TensorTable table;
  for (std::size_t i = 0; i < 40; ++i) {
    values.emplace_back(random() % (i % 10 == 0 ? 3'000'000 : 5'000));
    for (float& value : values.back()) value = std::bit_cast<float>(static_cast<int>(random()));
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    table.push_back(
        {.spec = {.key = std::to_string(i), .dtype = DType::kF32, .shape = {values[i].size()}},
         .data = std::as_bytes(std::span(values[i]))});
  }
  SavePlanner planner({.table_bytes = 3'000, .with_ranges = true});
  ASSERT_TRUE(planner.accept(table));
  const SavePlan plan = planner.plan_capture(table, 1);
  ASSERT_GT(plan.file_count(), 2U);

  std::vector<std::byte> memory(plan.image_bytes());
  for (const CaptureItem& item : plan.items) {
    std::ranges::copy(item.source, memory.begin() + static_cast<std::ptrdiff_t>(item.offset));
  }
  const Image image(memory, plan.sections, kSlabBytes);
  std::vector<std::size_t> slabs(image.slab_count());
  std::iota(slabs.begin(), slabs.end(), 0);
  std::ranges::shuffle(slabs, random);
  RangeScan scan(*plan.table, image);
  for (const std::size_t slab : slabs) scan.take(slab);

  auto place = plan.table->sources.begin();
  for (std::size_t file = 0; file < plan.file_count(); ++file) {
    for (const ValueRange& range : scan.ranges_of(file)) {
      EXPECT_EQ(range, value_range(DType::kF32, table[place->tensor].data))
          << "tensor " << place->tensor << ", seed " << kSeed;
      ++place;
    }
  }
  EXPECT_EQ(place, plan.table->sources.end());
}

}  // namespace
}  // namespace deepfreeze::statistics_test

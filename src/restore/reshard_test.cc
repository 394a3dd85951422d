// A state saved by any number of ranks, in any layout, is read by any other number in any other.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "base/thread_sanitizer.h"
#include "format/layout.h"
#include "plan/layouts.h"
#include "plan/share_plan.h"
#include "restore/run_fixture.h"
#include "restore/snapshot.h"
#include "support/sanitized.h"
#include "tensor/region.h"

namespace deepfreeze {
namespace {

// The part of a whole tensor that lies in the box.
std::vector<std::byte> cut(const OwnedTensor& whole, const Box& box) {
  const std::size_t element = dtype_bytes(whole.spec.dtype);
  std::vector<std::byte> bytes(element_count(box.extent) * element);
  for (const BoxRun& run : runs_of(box, stored_box(whole.spec), box)) {
    std::memcpy(bytes.data() + run.to * element, whole.data.data() + run.from * element,
                run.elements * element);
  }
  return bytes;
}

// Vectors of bytes compare slowly if nothing is optimized.
bool is_same(const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

using State = std::map<std::string, OwnedTensor>;

State any_state() {
  State state;
  const auto add = [&](const std::string& key, DType dtype, Shape shape) {
    state.emplace(key, random_tensor(key, dtype, std::move(shape), state.size() + 1));
  };
  add("embedding", DType::kF32, {301, 1024});  // is cut among replicas
  add("layers.0.weight", DType::kBF16, {37, 12});
  add("layers.1.weight", DType::kF32, {8, 9, 5});
  add("layers.1.bias", DType::kF64, {9});
  add("step", DType::kI64, {});
  add("nothing", DType::kF32, {0, 4});
  add("wide", DType::kU8, {1, 3, 360'000});
  return state;
}

// The box of a tensor that a rank has; empty if it does not have the tensor.
using Layout = std::optional<Box> (*)(const TensorSpec& whole, std::size_t number, std::size_t rank,
                                      std::size_t ranks);

std::optional<Box> replicated(const TensorSpec& whole, std::size_t, std::size_t, std::size_t) {
  return stored_box(whole);
}

Box cut_along(Box box, std::size_t dimension, std::size_t index, std::size_t count) {
  const std::uint64_t each = (box.extent[dimension] + count - 1) / count;
  const std::uint64_t first = std::min<std::uint64_t>(box.extent[dimension], index * each);
  box.extent[dimension] = std::min<std::uint64_t>(each, box.extent[dimension] - first);
  box.offset[dimension] += first;
  return box;
}

std::optional<Box> sharded(const TensorSpec& whole, std::size_t, std::size_t rank,
                           std::size_t ranks) {
  if (whole.shape.empty()) return stored_box(whole);
  return cut_along(stored_box(whole), 0, rank, ranks);
}

// Columns over pairs of ranks, rows over the pairs: fully_shard() of tensor-parallel layers.
std::optional<Box> meshed(const TensorSpec& whole, std::size_t, std::size_t rank,
                          std::size_t ranks) {
  if (whole.shape.size() < 2 || ranks % 2 != 0) return sharded(whole, 0, rank, ranks);
  const Box columns = cut_along(stored_box(whole), 1, rank % 2, 2);
  return cut_along(columns, 0, rank / 2, ranks / 2);
}

// Two copies of every shard.
std::optional<Box> hybrid(const TensorSpec& whole, std::size_t, std::size_t rank,
                          std::size_t ranks) {
  const std::size_t shards = std::max<std::size_t>(1, ranks / 2);
  return sharded(whole, 0, rank % shards, shards);
}

std::optional<Box> staged(const TensorSpec& whole, std::size_t number, std::size_t rank,
                          std::size_t ranks) {
  if (number % ranks != rank) return std::nullopt;
  return stored_box(whole);
}

constexpr Layout kLayouts[] = {replicated, sharded, meshed, hybrid, staged};
constexpr std::size_t kRanks[] = {1, 2, 3, 4, 8};

// Like the spec of a DTensor's shard: a box, even if it is all of the tensor.
TensorSpec spec_of(const TensorSpec& whole, const Box& box) {
  TensorSpec spec = whole;
  spec.global_shape = whole.shape;
  spec.shape = box.extent;
  spec.box = box;
  return spec;
}

SpecTable table_of(const State& state, Layout layout, std::size_t rank, std::size_t ranks) {
  SpecTable table;
  std::size_t number = 0;
  for (const auto& [key, tensor] : state) {
    if (const auto box = layout(tensor.spec, number++, rank, ranks)) {
      table.push_back(layout == replicated ? tensor.spec : spec_of(tensor.spec, *box));
    }
  }
  return table;
}

// The files that the ranks write, by the plan.
FixtureSave save_of(const State& state, Layout layout, std::size_t ranks) {
  Job job(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    job.table(rank) = table_of(state, layout, rank, ranks);
    job.add_rank(rank);
  }
  const SharePlan plan = must(plan_shares(job.ranks()));
  FixtureSave save{.step = 1, .ranks = {}, .tree = {}};
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    std::vector<OwnedTensor>& written = save.ranks.emplace_back();
    for (const Share& share : plan.ranks[rank]) {
      const TensorSpec spec = spec_of_share(job.table(rank)[share.tensor], share);
      written.push_back({spec, cut(state.at(spec.key), stored_box(spec))});
    }
  }
  return save;
}

void expect_reads_its_part(const Snapshot& snapshot, const State& state, const SpecTable& table) {
  std::vector<std::vector<std::byte>> found;
  std::vector<ReadTarget> targets;
  for (const TensorSpec& spec : table) found.emplace_back(spec_bytes(spec).value());
  for (std::size_t i = 0; i < table.size(); ++i) {
    targets.push_back({.key = table[i].key, .into = found[i], .box = table[i].box});
  }
  const Status read = snapshot.read(targets, {.on_progress = {}});
  ASSERT_TRUE(read) << read.error().message();
  for (std::size_t i = 0; i < table.size(); ++i) {
    const auto wanted = cut(state.at(table[i].key), stored_box(table[i]));
    EXPECT_TRUE(is_same(found[i], wanted)) << table[i].key;
  }
}

// Under a sanitizer, each pair of layouts has for each number of saving ranks one of reading ones.
TEST(Reshard, FromAnyLayoutToAnyOther) {
  if (DF_THREAD_SANITIZER) {
    GTEST_SKIP() << "LEFT OUT: minutes under ThreadSanitizer, for the threads of Snapshot's tests";
  }
  const State state = any_state();
  std::size_t turn = 0;
  for (const Layout from : kLayouts) {
    for (const std::size_t saving : kRanks) {
      RunFixture run;
      const auto snapshot = must(Snapshot::open(run.vfs(), run.save(save_of(state, from, saving))));
      ASSERT_EQ(snapshot->tensors().size(), state.size());
      ++turn;
      for (const Layout to : kLayouts) {
        ++turn;
        for (const std::size_t reading : kRanks) {
          if (kSanitized && reading != kRanks[turn % std::size(kRanks)]) continue;
          for (std::size_t rank = 0; rank < reading; ++rank) {
            expect_reads_its_part(*snapshot, state, table_of(state, to, rank, reading));
          }
        }
      }
      ASSERT_FALSE(HasFailure()) << saving << " ranks, layout "
                                 << std::ranges::find(kLayouts, from) - kLayouts;
    }
  }
}

TEST(Reshard, ASliceReadsItsOwnBlocksOnly) {
  State state;
  state.emplace("dense", random_tensor("dense", DType::kF32, {30'000, 200}, 1));  // 24 MB
  RunFixture run;
  const auto snapshot = must(Snapshot::open(run.vfs(), run.save(save_of(state, sharded, 4))));
  constexpr std::size_t kReading = 3;
  for (std::size_t rank = 0; rank < kReading; ++rank) {
    const SpecTable table = table_of(state, sharded, rank, kReading);
    std::vector<std::byte> found(spec_bytes(table[0]).value());
    std::uint64_t bytes_read = 0;
    const ReadTarget target{.key = "dense", .into = found, .box = table[0].box};
    ASSERT_TRUE(snapshot->read(std::span(&target, 1),
                               {.on_progress = [&](std::uint64_t bytes) { bytes_read = bytes; }}));
    EXPECT_LE(bytes_read, found.size() + 4 * kBlockBytes);
    EXPECT_GE(bytes_read, found.size());
  }
}

TEST(Reshard, WhatIsWantedMustLieWithinTheTensor) {
  const State state = any_state();
  RunFixture run;
  const auto snapshot = must(Snapshot::open(run.vfs(), run.save(save_of(state, sharded, 2))));
  std::vector<std::byte> into(24);
  const auto refusal = [&](Box box) {
    const ReadTarget target{.key = "layers.0.weight", .into = into, .box = std::move(box)};
    const Status read = snapshot->read(std::span(&target, 1), {.on_progress = {}});
    EXPECT_EQ(read.error().code(), ErrorCode::kMismatch);
    return read.error().message();
  };
  EXPECT_TRUE(refusal({{37, 0}, {1, 12}}).contains("1 from 37 on in dimension 0"));
  EXPECT_TRUE(refusal({{0, UINT64_MAX}, {1, 12}}).contains("in dimension 1"));
  EXPECT_TRUE(refusal({{0}, {12}}).contains("a box of 1 dimensions is wanted, it has 2"));
  EXPECT_TRUE(refusal({{0, 0}, {2, 12}}).contains("48 bytes are stored, 24 wanted"));
}

}  // namespace
}  // namespace deepfreeze

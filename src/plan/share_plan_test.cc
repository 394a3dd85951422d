#include "plan/share_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "plan/layouts.h"
#include "tensor/region.h"
#include "tensor/tensor_table.h"

namespace deepfreeze {
namespace {

std::uint64_t bytes_of(const SpecTable& table, const std::vector<Share>& shares) {
  std::uint64_t bytes = 0;
  for (const Share& share : shares) bytes += share.rows * rows_of(table[share.tensor]).bytes;
  return bytes;
}

std::vector<std::uint64_t> loads(const Job& job, const SharePlan& plan) {
  std::vector<std::uint64_t> found;
  for (std::size_t rank = 0; rank < job.ranks().size(); ++rank) {
    found.push_back(bytes_of(*job.ranks()[rank].tensors, plan.ranks[rank]));
  }
  return found;
}

// All that a plan promises, but for the balance.
void expect_sound(const Job& job, const SharePlan& plan) {
  std::map<std::string, std::vector<Box>> boxes;
  std::map<std::string, Shape> shapes;
  for (const RankState& rank : job.ranks()) {
    for (const TensorSpec& spec : *rank.tensors) shapes[spec.key] = whole_shape(spec);
  }
  ASSERT_EQ(plan.ranks.size(), job.ranks().size());
  for (std::size_t rank = 0; rank < plan.ranks.size(); ++rank) {
    const SpecTable& table = *job.ranks()[rank].tensors;
    ASSERT_TRUE(std::ranges::is_sorted(plan.ranks[rank], std::less_equal{}, &Share::tensor))
        << "one box a key";
    for (const Share& share : plan.ranks[rank]) {
      const TensorSpec spec = spec_of_share(table[share.tensor], share);
      EXPECT_TRUE(check_spec(spec)) << check_spec(spec).error().message();
      EXPECT_TRUE(share.rows > 0 || spec_bytes(spec).value() == 0);
      boxes[spec.key].push_back(stored_box(spec));
    }
  }
  for (const auto& [key, shape] : shapes) {
    EXPECT_FALSE(boxes[key].empty()) << key << " is written by nobody";
    std::vector<const Box*> tiles;
    for (const Box& box : boxes[key]) tiles.push_back(&box);
    EXPECT_EQ(fault_of_tiling(tiles, shape), std::nullopt) << key;
  }
}

std::uint64_t spread(const std::vector<std::uint64_t>& loads) {
  return std::ranges::max(loads) - std::ranges::min(loads);
}

TEST(SharePlan, OfOneRankIsAll) {
  Job job(1);
  job.table(0) = {whole("w", {4, 1'000'000}), whole("b", {}), whole("none", {0, 3})};
  job.add_rank(0);
  const SharePlan plan = plan_shares(job.ranks()).value();
  EXPECT_EQ(plan.ranks[0], (std::vector<Share>{{0, 0, 4}, {1, 0, 1}, {2, 0, 0}}));
  expect_sound(job, plan);
}

TEST(SharePlan, CutsOneHugeTensorByItsRows) {  // NT3: 99.9 % of its bytes are in one
  Job job(1);
  job.table(0) = {whole("small", {20}), whole("dense.w", {60'000, 200}), whole("last", {200, 20})};
  for (int rank = 0; rank < 4; ++rank) job.add_rank(0);
  const SharePlan plan = plan_shares(job.ranks()).value();
  expect_sound(job, plan);
  EXPECT_LT(spread(loads(job, plan)), 2000U);
  const Share& second = plan.ranks[1].front();
  const TensorSpec spec = spec_of_share(job.table(0)[1], second);
  EXPECT_EQ(spec.box->offset, (Shape{second.first_row, 0}));
  EXPECT_EQ(spec.shape, (Shape{second.rows, 200}));
}

TEST(SharePlan, CutsAlongTheFirstDimensionThatHasMoreThanOneIndex) {
  Job job(1);
  job.table(0) = {whole("w", {1, 1, 4096, 512})};
  for (int rank = 0; rank < 2; ++rank) job.add_rank(0);
  const SharePlan plan = plan_shares(job.ranks()).value();
  EXPECT_EQ(spec_of_share(job.table(0)[0], plan.ranks[1].front()).box,
            (Box{{0, 0, 2048, 0}, {1, 1, 2048, 512}}));
}

TEST(SharePlan, LeavesSmallTensorsWhole) {
  Job job(1);
  for (int i = 0; i < 100; ++i) job.table(0).push_back(whole("t" + std::to_string(i), {50'000}));
  for (int rank = 0; rank < 8; ++rank) job.add_rank(0);
  const SharePlan plan = plan_shares(job.ranks()).value();
  expect_sound(job, plan);
  for (const auto& shares : plan.ranks) {
    for (const Share& share : shares) EXPECT_EQ(share.rows, 50'000U);
  }
  EXPECT_LE(spread(loads(job, plan)), 2 * 200'000U);
}

TEST(SharePlan, DividesShardsAmongTheirReplicasOnly) {  // HSDP: 2 replicas of 3 shards
  Job job(3);
  for (std::size_t i = 0; i < 3; ++i) {
    job.table(i) = {shard("w", {5'000, 1'000}, i, 3), whole("norm", {1'000'000})};
  }
  for (std::size_t rank = 0; rank < 6; ++rank) job.add_rank(rank % 3);
  const SharePlan plan = plan_shares(job.ranks()).value();
  expect_sound(job, plan);
  EXPECT_LE(spread(loads(job, plan)), 2 * kCutBytesMin);
  for (std::size_t rank = 0; rank < 6; ++rank) {
    EXPECT_EQ(plan.ranks[rank].front().tensor, 0U) << "half a shard each";
  }
}

TEST(SharePlan, EvensOutWhatOnlySomeHave) {  // a pipeline whose stages differ, and an embedding
  Job job(2);
  job.table(0) = {whole("tied", {40'000, 100}), whole("stage0.w", {10'000, 100})};
  job.table(1) = {whole("stage1.w", {20'000, 100}), whole("tied", {40'000, 100})};
  for (std::size_t rank : {0U, 1U}) job.add_rank(rank);
  const SharePlan plan = plan_shares(job.ranks()).value();
  expect_sound(job, plan);
  EXPECT_LE(spread(loads(job, plan)), 400U);
}

TEST(SharePlan, TheSameTablesInOtherObjectsGiveTheSamePlan) {
  Job one(1);
  Job many(3);
  for (Job* job : {&one, &many}) {
    for (std::size_t rank = 0; rank < 3; ++rank) {
      const std::size_t table = job == &one ? 0 : rank;
      job->table(table) = {whole("a", {3'000, 777}), whole("b", {12}), whole("c", {999, 999})};
      job->add_rank(table);
    }
  }
  EXPECT_EQ(plan_shares(one.ranks())->ranks, plan_shares(many.ranks())->ranks);
}

// Ranks 0 and 3 have the same: as one object, or as two.
TEST(SharePlan, DoesNotDependOnWhichTablesAreOneObject) {
  std::vector<SharePlan> plans;
  for (const std::size_t last : {0U, 3U}) {
    Job job(4);
    for (const std::size_t table : {std::size_t{0}, last}) {
      job.table(table) = {whole("q", {12, 1'000'000}), whole("p", {12, 1'000'000})};
    }
    job.table(1) = {whole("p", {12, 1'000'000})};
    job.table(2) = {whole("q", {12, 1'000'000})};
    for (const std::size_t table : {std::size_t{0}, std::size_t{1}, std::size_t{2}, last}) {
      job.add_rank(table);
    }
    plans.push_back(plan_shares(job.ranks()).value());
    expect_sound(job, plans.back());
  }
  EXPECT_EQ(plans[0].ranks, plans[1].ranks);
}

TEST(SharePlan, DoesNotCutAnElementOfALogicalDtype) {
  Job job(1);
  job.table(0) = {whole("object", {4'000'000}, DType::kU8), whole("z", {3'000, 500, 2})};
  for (TensorSpec& spec : job.table(0)) spec.logical_dtype = "other";
  for (int rank = 0; rank < 2; ++rank) job.add_rank(0);
  const SharePlan plan = plan_shares(job.ranks()).value();
  expect_sound(job, plan);
  for (const auto& shares : plan.ranks) {
    for (const Share& share : shares) EXPECT_TRUE(share.tensor == 1 || share.rows == 1);
  }
}

// The rank that wrote a tensor mostly writes it again.
TEST(SharePlan, ASmallChangeMovesLittle) {
  Job before(1);
  for (int i = 0; i < 400; ++i) {
    before.table(0).push_back(whole("t" + std::to_string(i), {500, 500}));
  }
  Job after(1);
  after.table(0) = before.table(0);
  after.table(0).insert(after.table(0).begin() + 200, whole("new", {700, 500}));
  for (Job* job : {&before, &after}) {
    for (int rank = 0; rank < 8; ++rank) job->add_rank(0);
  }
  const auto writers = [](const Job& job) {
    std::map<std::string, std::size_t> found;
    const SharePlan plan = plan_shares(job.ranks()).value();
    for (std::size_t rank = 0; rank < 8; ++rank) {
      for (const Share& share : plan.ranks[rank]) {
        found.emplace((*job.ranks()[0].tensors)[share.tensor].key, rank);
      }
    }
    return found;
  };
  const auto old_writers = writers(before);
  int moved = 0;
  for (const auto& [key, rank] : writers(after)) {
    moved += key != "new" && old_writers.at(key) != rank ? 1 : 0;
  }
  EXPECT_LT(moved, 20);
}

// Random meshes, stages and sizes.
TEST(SharePlan, IsSoundAndEvenForAnyLayout) {
  const std::uint64_t seed = std::random_device()();
  std::mt19937_64 random(seed);
  for (int round = 0; round < 60; ++round) {
    SCOPED_TRACE("round " + std::to_string(round) + ", seed " + std::to_string(seed));
    const std::size_t shards = 1 + random() % 4;
    const std::size_t replicas = 1 + random() % 3;
    Job job(shards);
    for (std::size_t i = 0; i < 1 + random() % 40; ++i) {
      const Shape shape = {random() % 3'000, 1 + random() % 900};
      const std::string key = "t" + std::to_string(i);
      const std::uint64_t kind = random() % 3;
      for (std::size_t index = 0; index < shards; ++index) {
        if (kind == 0) job.table(index).push_back(shard(key, shape, index, shards));
        if (kind == 1) job.table(index).push_back(whole(key, shape));
        if (kind == 2 && index == i % shards) job.table(index).push_back(whole(key, shape));
      }
    }
    for (std::size_t rank = 0; rank < shards * replicas; ++rank) {
      job.add_rank(rank % shards, static_cast<std::uint32_t>(rank / 2));
    }
    const auto plan = plan_shares(job.ranks());
    ASSERT_TRUE(plan) << plan.error().message();
    expect_sound(job, *plan);
    const auto found = loads(job, *plan);
    for (std::size_t shard_index = 0; shard_index < shards; ++shard_index) {
      std::vector<std::uint64_t> of_replicas;
      for (std::size_t i = 0; i < replicas; ++i) {
        of_replicas.push_back(found[shard_index + i * shards]);
      }
      EXPECT_LE(spread(of_replicas), 2 * kCutBytesMin);
    }
  }
}

}  // namespace
}  // namespace deepfreeze

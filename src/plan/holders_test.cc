#include "plan/holders.h"

#include <gtest/gtest.h>

#include "plan/layouts.h"
#include "support/code_of.h"

namespace deepfreeze {
namespace {

using Ranks = std::vector<std::uint32_t>;

Ranks holders_of(const Holders& holders, const std::string& key, std::uint64_t row = 0) {
  for (const HeldBox& held : holders.boxes) {
    const std::uint64_t first = held.spec->box ? held.spec->box->offset[0] : 0;
    if (held.spec->key == key && first == row) return holders.groups[held.group];
  }
  return {};
}

TEST(Holders, OfReplicatedTensorsAreAll) {
  Job job(2);  // equal tables need not be one object
  for (std::size_t i : {0U, 1U}) job.table(i) = {whole("w", {4}), whole("b", {})};
  for (std::size_t i : {0U, 1U, 0U}) job.add_rank(i);
  const Holders holders = find_holders(job.ranks()).value();
  EXPECT_EQ(holders.boxes.size(), 2U);
  EXPECT_EQ(holders_of(holders, "w"), (Ranks{0, 1, 2}));
  EXPECT_EQ(holders_of(holders, "b"), (Ranks{0, 1, 2}));
}

TEST(Holders, OfShardsAreTheirReplicas) {  // 2 x 2: ranks 0 and 2 have the first half
  Job job(2);
  for (std::size_t i : {0U, 1U}) {
    job.table(i) = {shard("w", {5, 2}, i, 2), whole("norm", {3})};
  }
  for (std::size_t i : {0U, 1U, 0U, 1U}) job.add_rank(i);
  const Holders holders = find_holders(job.ranks()).value();
  EXPECT_EQ(holders_of(holders, "w", 0), (Ranks{0, 2}));
  EXPECT_EQ(holders_of(holders, "w", 3), (Ranks{1, 3}));
  EXPECT_EQ(holders_of(holders, "norm"), (Ranks{0, 1, 2, 3}));
}

TEST(Holders, OfKeysOfOneRankIsThatRank) {  // stages of a pipeline, generators
  Job job(2);
  job.table(0) = {whole("stage0.w", {4}), whole("@rank00000.rng", {8})};
  job.table(1) = {whole("@rank00001.rng", {8}), whole("stage1.w", {2})};
  for (std::size_t i : {0U, 1U}) job.add_rank(i);
  const Holders holders = find_holders(job.ranks()).value();
  EXPECT_EQ(holders_of(holders, "stage0.w"), Ranks{0});
  EXPECT_EQ(holders_of(holders, "stage1.w"), Ranks{1});
  EXPECT_EQ(holders_of(holders, "@rank00001.rng"), Ranks{1});
}

TEST(Holders, AreInTheOrderOfTheirNodes) {
  Job job(1);
  job.table(0) = {whole("w", {4})};
  for (const std::uint32_t node : {1U, 0U, 1U, 0U}) job.add_rank(0, node);
  EXPECT_EQ(holders_of(find_holders(job.ranks()).value(), "w"), (Ranks{1, 3, 0, 2}));
}

// A mesh dimension of one rank beside ranks that know nothing of a mesh.
TEST(Holders, ABoxOfAllOfItIsTheWhole) {
  for (const Shape& shape : {Shape{4}, Shape{4, 2}, Shape{0, 3}, Shape{}}) {
    Job job(2);
    job.table(0) = {whole("w", shape)};
    job.table(1) = {whole("w", shape)};
    job.table(1)[0].box = Box{Shape(shape.size()), shape};
    job.table(1)[0].global_shape = shape;
    for (std::size_t i : {0U, 1U}) job.add_rank(i);
    EXPECT_EQ(holders_of(find_holders(job.ranks()).value(), "w"), (Ranks{0, 1}));
  }
}

TEST(Holders, AKeyMayNotComeTwiceOnARank) {
  Job job(1);
  job.table(0) = {rows("w", {4}, 0, 2), whole("b", {1}), rows("w", {4}, 2, 4)};
  job.add_rank(0);
  const auto found = find_holders(job.ranks());
  ASSERT_EQ(code_of(found), ErrorCode::kInvalidArgument);
  EXPECT_EQ(found.error().message(), "tensor \"w\": its key is used twice on rank 0");
}

TEST(Holders, ARankMayHaveNothing) {
  Job job(2);
  job.table(0) = {whole("w", {4})};
  for (std::size_t i : {1U, 0U}) job.add_rank(i);
  EXPECT_EQ(holders_of(find_holders(job.ranks()).value(), "w"), Ranks{1});
}

// The error of find_holders() for two ranks with one tensor each.
std::string refusal(TensorSpec a, TensorSpec b) {
  Job job(2);
  job.table(0) = {std::move(a)};
  job.table(1) = {std::move(b)};
  for (std::size_t i : {0U, 1U}) job.add_rank(i);
  const auto found = find_holders(job.ranks());
  EXPECT_EQ(code_of(found), ErrorCode::kMismatch);
  return found ? "" : found.error().message();
}

TEST(Holders, MustAgree) {
  EXPECT_EQ(refusal(whole("w", {4}), whole("w", {4}, DType::kF16)),
            "tensor \"w\": ranks 0 and 1 disagree on its dtype: F32 and F16");
  EXPECT_EQ(refusal(whole("w", {4}), whole("w", {4, 1})),
            "tensor \"w\": ranks 0 and 1 disagree on its shape: [4] and [4, 1]");
  EXPECT_EQ(refusal(shard("w", {4, 1}, 0, 2), whole("w", {4})),
            "tensor \"w\": ranks 0 and 1 disagree on its shape: [4, 1] and [4]");
  auto complex = whole("w", {4, 2});
  complex.logical_dtype = "complex64";
  EXPECT_EQ(refusal(complex, whole("w", {4, 2})),
            "tensor \"w\": ranks 0 and 1 disagree on its dtype: complex64 and F32");
}

TEST(Holders, MustHaveEachElementOnce) {
  EXPECT_EQ(refusal(rows("w", {4}, 0, 2), rows("w", {4}, 3, 4)),
            "tensor \"w\": its boxes have 3 of 4 elements");
  EXPECT_EQ(refusal(rows("w", {4}, 0, 3), rows("w", {4}, 2, 4)),
            "tensor \"w\": a box at [2] of [2] overlaps one at [0] of [3]");
  EXPECT_TRUE(refusal(whole("w", {4}), rows("w", {4}, 2, 4)).contains("overlaps"));
}

}  // namespace
}  // namespace deepfreeze

#include "agreement/node_histories.h"

#include <gtest/gtest.h>

#include "support/code_of.h"

namespace deepfreeze::node_histories_test {
namespace {

const RunRecord kRun{.run_id = "00000000000000aa", .parent = {}, .wall_micros = 5};
const RunRecord kOther{.run_id = "00000000000000bb", .parent = {}, .wall_micros = 6};

NodeHistory::Claim claim(std::uint64_t generation, std::uint64_t claimant = 1, bool used = false) {
  GenerationRecord record;
  record.run_id = kRun.run_id;
  record.generation = generation;
  record.claimant = claimant;
  return {.record = record, .is_used = used};
}

NodeHistory history(std::vector<NodeHistory::Claim> claims) {
  NodeHistory made;
  made.run = kRun;
  made.claims = std::move(claims);
  return made;
}

// Nodes n0, n1 and so on.
Result<MergedHistory> merge(const std::vector<NodeHistory>& histories,
                            const std::optional<RunRecord>& made = {}) {
  std::vector<JobNode> nodes;
  for (std::size_t i = 0; i < histories.size(); ++i) {
    nodes.push_back({.digits = i, .host = "n" + std::to_string(i), .path = "/run", .ranks = {}});
  }
  return merge_histories(nodes, histories, made);
}

std::vector<std::uint64_t> generations(const std::vector<GenerationRecord>& records) {
  std::vector<std::uint64_t> all;
  for (const GenerationRecord& record : records) all.push_back(record.generation);
  return all;
}

TEST(NodeHistories, EachNodeGetsTheClaimsThatItLacksNewestFirst) {
  const auto merged = merge(
      {history({claim(1), claim(4)}), history({claim(1), claim(2), claim(3)}), NodeHistory{}});
  ASSERT_TRUE(merged);
  using Generations = std::vector<std::uint64_t>;
  EXPECT_EQ(generations(merged->patches[0].claims), (Generations{3, 2}));
  EXPECT_EQ(generations(merged->patches[1].claims), (Generations{4}));
  EXPECT_EQ(generations(merged->patches[2].claims), (Generations{4, 3, 2, 1}));
  EXPECT_EQ(merged->patches[0].run, std::nullopt);
  EXPECT_EQ(merged->patches[2].run, kRun);
  for (const HistoryPatch& patch : merged->patches) EXPECT_TRUE(patch.winners.empty());
}

TEST(NodeHistories, ANewRunGoesToAll) {
  const std::vector<NodeHistory> none(2);
  EXPECT_FALSE(any_run(none));
  const auto merged = merge(none, kRun);
  ASSERT_TRUE(merged);
  for (const HistoryPatch& patch : merged->patches) EXPECT_EQ(patch.run, kRun);
  EXPECT_TRUE(any_run({NodeHistory{}, history({})}));
}

TEST(NodeHistories, TwoRunsAreRefusedByTheirPlaces) {
  NodeHistory other;
  other.run = kOther;
  const auto merged = merge({NodeHistory{}, history({}), history({}), other});
  ASSERT_EQ(code_of(merged), ErrorCode::kMismatch);
  const std::string& message = merged.error().message();
  EXPECT_TRUE(message.contains("n1:/run holds run " + kRun.run_id)) << message;
  EXPECT_TRUE(message.contains("n3:/run holds run " + kOther.run_id)) << message;
}

TEST(NodeHistories, OfTwoClaimsOfOneNumberTheUsedOneHolds) {
  for (const bool is_first_used : {true, false}) {
    const auto merged = merge({history({claim(5, 1, is_first_used)}),
                               history({claim(5, 2, !is_first_used)}), history({})});
    ASSERT_TRUE(merged);
    const std::size_t winner = is_first_used ? 0 : 1;
    EXPECT_TRUE(merged->patches[winner].winners.empty());
    ASSERT_EQ(merged->patches[1 - winner].winners.size(), 1U);
    EXPECT_EQ(merged->patches[1 - winner].winners[0].claimant, winner + 1);
    EXPECT_TRUE(merged->patches[1 - winner].claims.empty());
    ASSERT_EQ(merged->patches[2].claims.size(), 1U);
    EXPECT_EQ(merged->patches[2].claims[0].claimant, winner + 1);
  }
}

TEST(NodeHistories, OfTwoClaimsThatNobodyUsedThatOfTheFirstNodeHolds) {
  const auto merged = merge({history({claim(5, 1)}), history({claim(5, 2)})});
  ASSERT_TRUE(merged);
  EXPECT_TRUE(merged->patches[0].winners.empty());
  ASSERT_EQ(merged->patches[1].winners.size(), 1U);
  EXPECT_EQ(merged->patches[1].winners[0].claimant, 1U);
}

TEST(NodeHistories, TwoUsedClaimsOfOneNumberAreRefused) {
  const auto merged =
      merge({history({claim(5, 1)}), history({claim(5, 2, true)}), history({claim(5, 3, true)})});
  ASSERT_EQ(code_of(merged), ErrorCode::kMismatch);
  const std::string& message = merged.error().message();
  EXPECT_TRUE(message.contains("generation 5, one on n1:/run and one on n2:/run")) << message;
  EXPECT_TRUE(merge({history({claim(5, 2, true)}), history({claim(5, 2, true)})})) << "the same";
}

TEST(NodeHistories, ADamagedClaimKeepsItsNumber) {
  NodeHistory damaged = history({claim(1)});
  damaged.unreadable = {2};
  const auto merged = merge({damaged, history({claim(1), claim(2), claim(3)})});
  ASSERT_TRUE(merged);
  EXPECT_EQ(generations(merged->patches[0].claims), (std::vector<std::uint64_t>{3}));
  EXPECT_EQ(merged->highest.generation, 3U);
  damaged.unreadable = {8};
  EXPECT_EQ(merge({damaged, history({})})->highest.generation, 8U);
}

TEST(NodeHistories, TheNewestSaveIsThatOfAnyNode) {
  NodeHistory one = history({});
  NodeHistory two = history({});
  one.save_index = 3;
  two.save_index = 9;
  EXPECT_EQ(merge({one, two})->highest.save_index, 9U);
  EXPECT_EQ(merge({two, one})->highest.save_index, 9U);
}

}  // namespace
}  // namespace deepfreeze::node_histories_test

#include "protect/parity_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "protect/erasure_code.h"
#include "protect/parity_groups.h"

namespace deepfreeze {
namespace {

TEST(ParityLayout, EachMemberHasOnePieceOfEachStripe) {
  for (std::size_t members = 2; members <= 9; ++members) {
    for (std::size_t parity = 1; parity < members; ++parity) {
      const ParityLayout layout(members, parity);
      for (std::size_t stripe = 0; stripe < members; ++stripe) {
        std::set<std::size_t> seen;
        for (std::size_t i = 0; i < layout.data(); ++i) {
          const std::size_t member = layout.data_member(stripe, i);
          seen.insert(member);
          EXPECT_EQ(layout.stripe_of_chunk(member, i), stripe);
        }
        for (std::size_t row = 0; row < parity; ++row) {
          const std::size_t member = layout.parity_member(stripe, row);
          seen.insert(member);
          EXPECT_EQ(layout.stripe_of_parity(member, row), stripe);
        }
        EXPECT_EQ(seen.size(), members);
      }
    }
  }
}

std::vector<std::string> domains(std::vector<std::size_t> sizes) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    for (std::size_t k = 0; k < sizes[i]; ++k) names.push_back("switch" + std::to_string(i));
  }
  return names;
}

std::vector<std::string> hosts(std::size_t count) {
  return domains(std::vector<std::size_t>(count, 1));
}

std::vector<std::size_t> sizes_of(std::size_t nodes, const Parity& parity) {
  std::vector<std::size_t> sizes;
  const auto found = group_nodes(hosts(nodes), parity).value();
  for (const auto& group : found.groups) sizes.push_back(group.size());
  return sizes;
}

TEST(ParityGroups, HaveAboutTheSizeThatIsAskedFor) {
  const Parity usual{.data = 6, .parity = 2};
  EXPECT_EQ(sizes_of(3, usual), (std::vector<std::size_t>{3}));
  EXPECT_EQ(sizes_of(8, usual), (std::vector<std::size_t>{8}));
  EXPECT_EQ(sizes_of(11, usual), (std::vector<std::size_t>{11}));
  EXPECT_EQ(sizes_of(12, usual), (std::vector<std::size_t>{6, 6}));
  EXPECT_EQ(sizes_of(25, usual), (std::vector<std::size_t>{9, 8, 8}));
  const Parity pairs{.data = 1, .parity = 1};
  EXPECT_EQ(sizes_of(2, pairs), (std::vector<std::size_t>{2}));
  EXPECT_EQ(sizes_of(3, pairs), (std::vector<std::size_t>{3}));
  EXPECT_EQ(sizes_of(4, pairs), (std::vector<std::size_t>{2, 2}));
  EXPECT_EQ(sizes_of(5, pairs), (std::vector<std::size_t>{3, 2}));
  const Parity largest{.data = kPiecesMax - 2, .parity = 2};
  EXPECT_EQ(sizes_of(kPiecesMax + 1, largest), (std::vector<std::size_t>{65, 64}));
}

TEST(ParityGroups, HaveEachNodeOnce) {
  for (std::size_t nodes = 3; nodes <= 70; ++nodes) {
    const auto found = group_nodes(hosts(nodes), {.data = 4, .parity = 2}).value();
    std::set<std::size_t> seen;
    for (const auto& group : found.groups) {
      EXPECT_TRUE(std::ranges::is_sorted(group));
      EXPECT_GE(group.size(), 3U);
      seen.insert(group.begin(), group.end());
    }
    EXPECT_EQ(seen.size(), nodes);
    EXPECT_EQ(found.crowded_domain, "");
  }
}

TEST(ParityGroups, SpreadTheNodesOfADomain) {
  // Four groups of four: each domain fits in all of them.
  for (const auto& sizes :
       {std::vector<std::size_t>{4, 4, 4, 4}, {1, 4, 2, 4, 3, 2}, {3, 3, 3, 3, 4}}) {
    const auto names = domains(sizes);
    const auto found = group_nodes(names, {.data = 3, .parity = 1}).value();
    EXPECT_EQ(found.groups.size(), 4U);
    EXPECT_EQ(found.crowded_domain, "");
  }
  const auto crowded = group_nodes(domains({5, 3, 8}), {.data = 3, .parity = 1}).value();
  EXPECT_EQ(crowded.crowded_domain.substr(0, 6), "switch");
  // As evenly as can be: two of switch2 in each group.
  for (const auto& group : crowded.groups) {
    EXPECT_EQ(std::ranges::count_if(group, [](std::size_t node) { return node >= 8; }), 2);
  }
}

TEST(ParityGroups, RefuseTooFewNodes) {
  for (const std::size_t nodes : {0UL, 1UL, 2UL}) {
    const auto found = group_nodes(hosts(nodes), {.data = 6, .parity = 2});
    ASSERT_FALSE(found);
    EXPECT_EQ(found.error().code(), ErrorCode::kInvalidArgument);
  }
  EXPECT_FALSE(group_nodes(hosts(129), {.data = 48, .parity = 80}));
  EXPECT_FALSE(group_nodes(hosts(9), {.data = 0, .parity = 2}));
  EXPECT_FALSE(group_nodes(hosts(9), {.data = 6, .parity = 0}));
  EXPECT_FALSE(group_nodes(hosts(9), {.data = kPiecesMax, .parity = 1}));
}

}  // namespace
}  // namespace deepfreeze

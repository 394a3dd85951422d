#include "protect/loss_odds.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "protect/parity_groups.h"

namespace deepfreeze {
namespace {

using Sizes = std::vector<std::size_t>;

Sizes equal_groups(std::size_t nodes, std::size_t size) { return Sizes(nodes / size, size); }

// By hand: 32 of 2,016 pairs of 64 nodes are partners; three of 64 nodes are in one group of eight
// in 8 C(8, 3) of C(64, 3) cases.
TEST(LossOdds, ManyAtOnce) {
  EXPECT_NEAR(loss_of_many(equal_groups(64, 2), 1, 2), 32.0 / 2016, 1e-12);
  EXPECT_NEAR(loss_of_many(equal_groups(64, 8), 2, 3), 8 * 56.0 / 41664, 1e-12);
  EXPECT_EQ(loss_of_many(equal_groups(64, 8), 2, 2), 0);
  EXPECT_EQ(loss_of_many(equal_groups(64, 8), 2, 0), 0);
  for (std::size_t pairs = 1; pairs < 200; ++pairs) {
    EXPECT_EQ(loss_of_many(equal_groups(2 * pairs, 2), 1, 1), 0);
  }
  EXPECT_NEAR(loss_of_many(equal_groups(64, 1), 0, 1), 1, 1e-12);
  EXPECT_NEAR(loss_of_many({}, 0, 0), 0, 1e-12);
}

// Figures of docs/recipes.md and of an exact count by another program.
TEST(LossOdds, KnownFigures) {
  EXPECT_NEAR(loss_of_many(equal_groups(256, 2), 1, 4), 0.024, 0.001);
  EXPECT_NEAR(loss_of_many(equal_groups(256, 8), 1, 4), 0.16, 0.005);
  EXPECT_NEAR(loss_of_many(equal_groups(256, 8), 2, 8), 0.034, 0.001);
  EXPECT_NEAR(loss_of_many(equal_groups(1024, 16), 4, 8) / 1.6e-6, 1, 0.05);
  constexpr double kYears = 365.25 * 86'400;
  const auto month = [](const Sizes& groups, std::size_t parity) {
    return loss_over_time(groups, parity, 5 * kYears, 600, 30 * 86'400.0);
  };
  EXPECT_NEAR(month(equal_groups(1024, 2), 1) / 3.2e-5, 1, 0.05);
  EXPECT_NEAR(month(equal_groups(1024, 8), 1) / 2.2e-4, 1, 0.05);
  EXPECT_NEAR(month(equal_groups(1024, 8), 2) / 1.7e-9, 1, 0.05);
  EXPECT_NEAR(month(equal_groups(1024, 1), 0), 1, 1e-6);
}

TEST(LossOdds, EachByItself) {
  EXPECT_NEAR(loss_of_each(equal_groups(2, 2), 1, 0.1), 0.01, 1e-12);
  EXPECT_NEAR(loss_of_each(equal_groups(4, 2), 1, 0.1), 1 - 0.99 * 0.99, 1e-12);
  EXPECT_EQ(loss_of_each(equal_groups(4, 2), 1, 0), 0);
  EXPECT_EQ(loss_of_each(equal_groups(4, 2), 1, 1), 1);
  EXPECT_EQ(loss_of_each(Sizes{1}, 1, 1), 0);
}

TEST(LossOdds, TheBestIntervalIsYoungs) { EXPECT_DOUBLE_EQ(best_interval(2, 100), 20); }

// Nodes that are drawn at random, in the groups that a job would have.
struct Drawn {
  ParityGroups groups;
  Sizes sizes;
  std::size_t parity;
  std::mt19937_64 random;

  Drawn(std::size_t nodes, const Parity& asked, std::uint64_t seed)
      : parity(asked.parity), random(seed) {
    std::vector<std::string> domains;
    for (std::size_t i = 0; i < nodes; ++i) domains.push_back(std::to_string(i / 2));
    groups = group_nodes(domains, asked).value();
    for (const auto& group : groups.groups) sizes.push_back(group.size());
  }
  [[nodiscard]] bool is_lost(const std::vector<bool>& lost) const {
    return std::ranges::any_of(groups.groups, [&](const auto& group) {
      const auto count = std::ranges::count_if(group, [&](std::size_t node) { return lost[node]; });
      return static_cast<std::size_t>(count) > parity;
    });
  }
};

// Within five standard errors.
void expect_near(double expected, std::size_t hits, std::size_t rounds) {
  const double found = static_cast<double>(hits) / static_cast<double>(rounds);
  const double error = std::sqrt(expected * (1 - expected) / static_cast<double>(rounds));
  EXPECT_NEAR(found, expected, 5 * error + 1e-12);
}

TEST(LossOdds, AreThoseOfTheGroupsThatAreMade) {
  constexpr std::size_t kRounds = 20'000;
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  for (const Parity& asked : {Parity{.data = 1, .parity = 1}, Parity{.data = 6, .parity = 2},
                              Parity{.data = 4, .parity = 1}}) {
    Drawn drawn(37, asked, seed);
    std::vector<std::size_t> nodes(37);
    std::iota(nodes.begin(), nodes.end(), 0);
    for (const std::size_t lost : {2UL, 4UL, 8UL}) {
      std::size_t hits = 0;
      for (std::size_t round = 0; round < kRounds; ++round) {
        std::vector<bool> is_lost(nodes.size());
        std::vector<std::size_t> chosen;
        std::ranges::sample(nodes, std::back_inserter(chosen), static_cast<std::ptrdiff_t>(lost),
                            drawn.random);
        for (const std::size_t node : chosen) is_lost[node] = true;
        hits += drawn.is_lost(is_lost) ? 1 : 0;
      }
      expect_near(loss_of_many(drawn.sizes, asked.parity, lost), hits, kRounds);
    }
    std::bernoulli_distribution fails(0.05);
    std::size_t hits = 0;
    for (std::size_t round = 0; round < kRounds; ++round) {
      std::vector<bool> is_lost(nodes.size());
      for (std::size_t node = 0; node < nodes.size(); ++node) is_lost[node] = fails(drawn.random);
      hits += drawn.is_lost(is_lost) ? 1 : 0;
    }
    expect_near(loss_of_each(drawn.sizes, asked.parity, 0.05), hits, kRounds);
  }
}

}  // namespace
}  // namespace deepfreeze

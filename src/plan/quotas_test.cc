#include "plan/quotas.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace deepfreeze {
namespace {

using Numbers = std::vector<std::uint64_t>;

TEST(Quotas, AreEqualWhereLoadsAre) {
  EXPECT_EQ(fill_quotas(Numbers{0, 0, 0, 0}, 8), (Numbers{2, 2, 2, 2}));
  EXPECT_EQ(fill_quotas(Numbers{5, 5}, 3), (Numbers{2, 1})) << "the odd byte goes to the first";
  EXPECT_EQ(fill_quotas(Numbers{7}, 9), (Numbers{9}));
}

TEST(Quotas, FillTheLeastLoadedFirst) {
  EXPECT_EQ(fill_quotas(Numbers{10, 0, 4}, 3), (Numbers{0, 3, 0}));
  EXPECT_EQ(fill_quotas(Numbers{10, 0, 4}, 8), (Numbers{0, 6, 2}));
  EXPECT_EQ(fill_quotas(Numbers{10, 0, 4}, 16), (Numbers{0, 10, 6}));
  EXPECT_EQ(fill_quotas(Numbers{10, 0, 4}, 19), (Numbers{1, 11, 7}));
}

TEST(Quotas, OfNothingAreNothing) {
  EXPECT_EQ(fill_quotas(Numbers{3, 0, 0}, 0), (Numbers{0, 0, 0}));
}

// Ranks that were given something end within a byte of each other, and nobody else is below them.
TEST(Quotas, MakeAnyLoadsAsEqualAsCanBe) {
  const std::uint64_t seed = std::random_device()();
  std::mt19937_64 random(seed);
  for (int round = 0; round < 1000; ++round) {
    Numbers loads(1 + random() % 9);
    for (std::uint64_t& load : loads) load = random() % 50;
    const std::uint64_t bytes = random() % 300;
    const Numbers quotas = fill_quotas(loads, bytes);
    ASSERT_EQ(std::accumulate(quotas.begin(), quotas.end(), std::uint64_t{0}), bytes);
    std::uint64_t least = UINT64_MAX;
    std::uint64_t greatest_given = 0;
    for (std::size_t i = 0; i < loads.size(); ++i) {
      least = std::min(least, loads[i] + quotas[i]);
      if (quotas[i] > 0) greatest_given = std::max(greatest_given, loads[i] + quotas[i]);
    }
    if (bytes == 0) continue;
    ASSERT_LE(greatest_given, least + 1) << "seed " << seed;
  }
}

}  // namespace
}  // namespace deepfreeze

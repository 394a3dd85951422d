#include "tiering/tier_cost.h"

#include <gtest/gtest.h>

#include "object/object_tier.h"

namespace deepfreeze {
namespace {

constexpr TierPrices kPrices{.gb_month = 0.02, .thousand_puts = 5, .thousand_gets = 0.5};
constexpr std::uint64_t kGb = 1'000'000'000;

// 100 checkpoints a month, of one GB.
TierUse hundred_a_month() {
  return {.every = 73, .steps_per_hour = 10, .checkpoint_bytes = kGb, .files = 1};
}

TEST(TierCost, TheLastOnesStayAndNoMore) {
  TierUse use = hundred_a_month();
  use.keep_last = 5;
  const TierMonth first = month_of_tier(use, kPrices, 1);
  EXPECT_DOUBLE_EQ(first.checkpoints, 100);
  EXPECT_DOUBLE_EQ(first.kept, 5);
  EXPECT_DOUBLE_EQ(first.bytes, 5e9);
  // They fill up in a twentieth of the month: 2.5 GB on average there, 5 GB then.
  EXPECT_NEAR(first.storage_cost, (2.5 * 0.05 + 5 * 0.95) * 0.02, 1e-12);
  const TierMonth later = month_of_tier(use, kPrices, 7);
  EXPECT_DOUBLE_EQ(later.kept, 5);
  EXPECT_NEAR(later.storage_cost, 5 * 0.02, 1e-12);
}

TEST(TierCost, WithoutARuleAllStayAndTheBillGrows) {
  const TierUse use = hundred_a_month();
  EXPECT_NEAR(month_of_tier(use, kPrices, 1).storage_cost, 50 * 0.02, 1e-9);
  const TierMonth third = month_of_tier(use, kPrices, 3);
  EXPECT_DOUBLE_EQ(third.kept, 300);
  EXPECT_NEAR(third.storage_cost, 250 * 0.02, 1e-9);
}

TEST(TierCost, MultiplesStayForGoodIfTheyAreCopied) {
  TierUse use = hundred_a_month();
  use.keep_last = 3;
  use.keep_every = 730;  // each tenth
  EXPECT_NEAR(month_of_tier(use, kPrices, 2).kept, 3 + 20, 1e-9);
  use.keep_every = 365;  // each fifth
  EXPECT_NEAR(month_of_tier(use, kPrices, 2).kept, 3 + 40, 1e-9);
  use.keep_every = 10;  // of these, the tier gets one in 73
  EXPECT_NEAR(month_of_tier(use, kPrices, 2).kept, 3 + 20, 1e-9);
  use.keep_last = 0;
  EXPECT_NEAR(month_of_tier(use, kPrices, 2).kept, 1 + 20, 1e-9) << "and the newest";
}

TEST(TierCost, PartsCountAsRequests) {
  TierUse use = hundred_a_month();
  use.keep_last = 2;
  const auto puts = [&](std::uint64_t bytes, std::uint64_t files) {
    use.checkpoint_bytes = bytes;
    use.files = files;
    return month_of_tier(use, kPrices, 1).puts / 100;
  };
  const double small = puts(kPartBytes, 1);
  EXPECT_DOUBLE_EQ(small, 1 + 2 + 16);
  EXPECT_DOUBLE_EQ(puts(kPartBytes + 1, 1), small + 3);
  EXPECT_DOUBLE_EQ(puts(10 * kPartBytes, 1), small + 11);
  EXPECT_DOUBLE_EQ(puts(2 * kPartBytes, 2), small + 1);
  EXPECT_DOUBLE_EQ(puts(4 * kPartBytes, 2), small + 7);
  EXPECT_DOUBLE_EQ(puts(std::uint64_t{1} << 44U, 4), small - 1 + 4 * (8982 + 2))
      << "parts grow for large files";
}

TEST(TierCost, ListingsHavePagesOfAThousandKeys) {
  TierUse use = hundred_a_month();
  use.keep_last = 1;
  use.files = 999;
  use.checkpoint_bytes = 999;
  const double one_page = month_of_tier(use, kPrices, 1).puts / 100;
  EXPECT_DOUBLE_EQ(one_page, 999 + 2 + 16);
  use.keep_last = 2;
  EXPECT_DOUBLE_EQ(month_of_tier(use, kPrices, 1).puts / 100, one_page + 6);
}

TEST(TierCost, RequestsHaveTheirOwnPrices) {
  TierUse use = hundred_a_month();
  use.keep_last = 1;
  const TierMonth month = month_of_tier(use, kPrices, 1);
  EXPECT_NEAR(month.gets, 2200, 1e-9);
  EXPECT_NEAR(month.request_cost, month.puts / 1000 * 5 + 2.2 * 0.5, 1e-9);
  EXPECT_DOUBLE_EQ(month.cost(), month.storage_cost + month.request_cost);
}

TEST(TierCost, ATrainingThatStandsStillCostsNothing) {
  TierUse use = hundred_a_month();
  use.steps_per_hour = 0;
  use.keep_last = 3;
  const TierMonth month = month_of_tier(use, kPrices, 2);
  EXPECT_EQ(month.kept, 0);
  EXPECT_EQ(month.cost(), 0);
}

}  // namespace
}  // namespace deepfreeze

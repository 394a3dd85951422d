// tiers --plan.
#include <gtest/gtest.h>

#include "cli/test_run.h"
#include "restore/run_fixture.h"

namespace deepfreeze {
namespace {

using nlohmann::json;

TEST(TiersPlan, TakesTheSizeOfTheRunsNewestCheckpoint) {
  RunFixture run;
  run.save({.step = 1, .ranks = {{f32_tensor("a", {1})}}, .tree = ""});
  const Manifest newest = run.save({.step = 2,
                                    .ranks = {{random_tensor("a", DType::kU8, {200'000}, 1)},
                                              {random_tensor("b", DType::kU8, {200'000}, 2)}},
                                    .tree = ""});
  const Answer answer =
      call_json({"tiers", "--plan", run.text(), "--steps-per-hour", "100", "--keep-last", "5"});
  ASSERT_EQ(answer.code, 0) << answer.err;
  const json found = answer.json();
  EXPECT_EQ(found["checkpoint_bytes"], stored_bytes(newest));
  EXPECT_EQ(found["files"], 2);
  EXPECT_EQ(found["every"], 1);
  EXPECT_EQ(found["prices"]["are_examples"], true);
  ASSERT_EQ(found["months"].size(), 2U);
  EXPECT_EQ(found["months"][1]["month"], 12);
  EXPECT_EQ(found["months"][1]["kept"], 5);
  EXPECT_EQ(found["months"][1]["bytes"], 5 * stored_bytes(newest));
}

TEST(TiersPlan, TellsABillForPeople) {
  const Answer answer =
      call({"tiers", "--plan", "--bytes", "1000000000", "--every", "73", "--steps-per-hour", "10",
            "--keep-last", "10", "--months", "3", "--price-gb-month", "0.5"});
  ASSERT_EQ(answer.code, 0) << answer.err;
  EXPECT_TRUE(answer.says("checkpoints copied      100      100")) << answer.out;
  EXPECT_TRUE(answer.says("bytes at its end    10.0 GB  10.0 GB")) << answer.out;
  EXPECT_TRUE(answer.says("cost of bytes          4.75     5.00")) << answer.out;
  EXPECT_TRUE(answer.says("prices: 0.5 for a GB and month, 0.005 for")) << answer.out;
  EXPECT_FALSE(answer.says("examples")) << answer.out;
  EXPECT_TRUE(call({"tiers", "--plan", "--bytes", "1", "--steps-per-hour", "1"}).says("examples"));
}

TEST(TiersPlan, OneMonthIsToldOnce) {
  const Answer answer =
      call_json({"tiers", "--plan", "--bytes", "1", "--steps-per-hour", "0.5", "--months", "1"});
  ASSERT_EQ(answer.code, 0) << answer.err;
  EXPECT_EQ(answer.json()["months"].size(), 1U);
  EXPECT_EQ(answer.json()["months"][0]["checkpoints"], 365);
}

TEST(TiersPlan, SaysWhatIsMissing) {
  const auto refusal = [](const std::vector<std::string>& words) {
    const Answer answer = call(words);
    EXPECT_EQ(answer.code, 2) << answer.out;
    return answer.err;
  };
  const std::string needs_bytes = refusal({"tiers", "--plan", "--steps-per-hour", "1"});
  EXPECT_NE(needs_bytes.find("name a RUN, or give --bytes"), std::string::npos) << needs_bytes;
  const std::string needs_pace = refusal({"tiers", "--plan", "--bytes", "1"});
  EXPECT_NE(needs_pace.find("--steps-per-hour"), std::string::npos) << needs_pace;
  const std::string no_tiers =
      refusal({"tiers", "--plan", "--bytes", "1", "--steps-per-hour", "1", "/run", "/tier"});
  EXPECT_NE(no_tiers.find("no TIER"), std::string::npos) << no_tiers;
  const std::string needs_tier = refusal({"tiers", "/run"});
  EXPECT_NE(needs_tier.find("at least one TIER"), std::string::npos) << needs_tier;
  refusal({"tiers", "--plan", "--bytes", "1", "--steps-per-hour", "-1"});
  refusal({"tiers", "--plan", "--bytes", "1", "--steps-per-hour", "nan"});
  refusal({"tiers", "--plan", "--bytes", "0", "--steps-per-hour", "1"});
}

}  // namespace
}  // namespace deepfreeze

#include "manifest/ranking.h"

#include <gtest/gtest.h>

#include <limits>

#include "manifest/history.h"
#include "manifest/listing_maker.h"
#include "support/code_of.h"

namespace deepfreeze {
namespace {

using enum Keep::Better;

const Keep::Best kByAccuracy{.metric = "acc", .better = kMax};

// The step of the best; 0 if there is none.
std::uint64_t best_step(const ListingMaker& run, const BestBy& by,
                        const std::optional<Keep::Best>& rule = {}) {
  const std::vector<Manifest> manifests = newest_first(run.listing());
  const auto place = place_of_best(measured(manifests, run.listing()), by, rule);
  return place ? manifests[*place].point.step : 0;
}

Error refusal(const ListingMaker& run, const BestBy& by,
              const std::optional<Keep::Best>& rule = {}) {
  const std::vector<Manifest> manifests = newest_first(run.listing());
  const auto place = place_of_best(measured(manifests, run.listing()), by, rule);
  return place ? Error(ErrorCode::kInternal, "there is one") : place.error();
}

// Steps 1 to 4; loss is least at 2, accuracy greatest at 3.
ListingMaker measured_run() {
  ListingMaker run;
  run.claim(1, {});
  const std::vector<std::pair<double, double>> values = {{4, 0.1}, {1, 0.5}, {2, 0.9}, {3, 0.2}};
  std::uint64_t step = 0;
  for (const auto& [loss, accuracy] : values) {
    run.commit(1, ++step).metric("val_loss", loss).metric("acc", accuracy);
  }
  return run;
}

TEST(Ranking, TakesMetricAndDirectionFromTheCallTheRuleOrTheName) {
  const ListingMaker run = measured_run();
  EXPECT_EQ(best_step(run, {}, kByAccuracy), 3U);
  EXPECT_EQ(best_step(run, {.metric = "acc"}, kByAccuracy), 3U);
  EXPECT_EQ(best_step(run, {.metric = "acc", .better = kMin}, kByAccuracy), 1U);
  EXPECT_EQ(best_step(run, {.better = kMin}, kByAccuracy), 1U);
  EXPECT_EQ(best_step(run, {.metric = "val_loss"}), 2U);
  EXPECT_EQ(best_step(run, {.metric = "val_loss"}, Keep::Best{"val_loss", kMax}), 1U)
      << "the run's rule is more than the name";
}

TEST(Ranking, NeverGuesses) {
  const ListingMaker run = measured_run();
  const Error no_rule = refusal(run, {});
  EXPECT_EQ(no_rule.code(), ErrorCode::kInvalidArgument);
  EXPECT_NE(no_rule.message().find("there are acc, val_loss"), std::string::npos);
  EXPECT_NE(no_rule.message().find("best:METRIC:min"), std::string::npos);
  const Error no_direction = refusal(run, {.metric = "acc"});
  EXPECT_EQ(no_direction.code(), ErrorCode::kInvalidArgument);
  EXPECT_NE(no_direction.message().find("best:acc:max"), std::string::npos);
  EXPECT_EQ(refusal(run, {.metric = "acc"}, Keep::Best{"val_loss", kMin}).code(),
            ErrorCode::kInvalidArgument)
      << "the rule is for another metric";
  const Error unknown = refusal(run, {.metric = "los", .better = kMin});
  EXPECT_EQ(unknown.code(), ErrorCode::kNotFound);
  EXPECT_EQ(unknown.message(), "no checkpoint has the metric los; there are acc, val_loss");
  ListingMaker bare;
  EXPECT_EQ(refusal(bare.claim(1, {}).commit(1, 1), {}, kByAccuracy).message(),
            "no checkpoint has the metric acc; no checkpoint has any metric");
}

TEST(Ranking, NamesNoMoreMetricsThanCanBeRead) {
  ListingMaker run;
  run.claim(1, {}).commit(1, 1);
  for (int i = 0; i < 30; ++i) run.metric("m" + std::to_string(10 + i), i);
  const std::string text = refusal(run, {.metric = "x", .better = kMin}).message();
  EXPECT_NE(text.find("m29, …"), std::string::npos) << text;
  EXPECT_EQ(text.find("m30"), std::string::npos) << text;
}

TEST(Ranking, OfEqualOnesTheNewerIsBetter) {
  ListingMaker run;
  run.claim(1, {});
  for (std::uint64_t step = 1; step <= 3; ++step) run.commit(1, step).metric("loss", 7);
  EXPECT_EQ(best_step(run, {.metric = "loss"}), 3U);
}

TEST(Ranking, LeavesOutWhatIsAbandonedNotFiniteOrWithoutTheMetric) {
  ListingMaker run;
  run.claim(1, {}).commit(1, 1).metric("loss", 5).commit(1, 2).metric("loss", 0);
  run.claim(2, make_point(1, 1)).commit(2, 2).metric("loss", 6);
  run.commit(2, 3).metric("loss", 1).non_finite(1);
  run.commit(2, 4).metric("loss", std::numeric_limits<double>::quiet_NaN());
  run.commit(2, 5).metric("acc", 1);
  EXPECT_EQ(best_step(run, {.metric = "loss"}), 1U);
}

TEST(Ranking, SaysWhyNoneThatHasTheMetricIsBest) {
  ListingMaker run;
  run.claim(1, {}).commit(1, 1).metric("loss", std::numeric_limits<double>::quiet_NaN());
  const Error none = refusal(run, {.metric = "loss"});
  EXPECT_EQ(none.code(), ErrorCode::kNotFound);
  EXPECT_NE(none.message().find("has NaN for it"), std::string::npos);
}

TEST(Ranking, ReadsMetricAndDirectionFromAText) {
  using Pair = std::pair<std::optional<std::string>, std::optional<Keep::Better>>;
  const auto parsed = [](std::string_view text) {
    const auto by = parse_best(text);
    return by ? Pair(by->metric, by->better) : Pair("refused", std::nullopt);
  };
  EXPECT_EQ(parsed("best"), Pair());
  EXPECT_EQ(parsed("best:loss"), Pair("loss", std::nullopt));
  EXPECT_EQ(parsed("best:val/acc:max"), Pair("val/acc", kMax));
  EXPECT_EQ(parsed("best:eval:loss"), Pair("eval:loss", std::nullopt));
  EXPECT_EQ(parsed("best:eval:loss:min"), Pair("eval:loss", kMin));
  EXPECT_EQ(parsed("best:recall@10:max"), Pair("recall@10", kMax));
  for (const char* odd : {"", "best:", "best::min", "bestt", "Best", "latest", "7"}) {
    EXPECT_EQ(code_of(parse_best(odd)), ErrorCode::kInvalidArgument) << odd;
  }
}

TEST(Ranking, TheRuleOfTheRunIsThatOfItsNewestClaim) {
  ListingMaker run;
  EXPECT_EQ(recorded_keep(run.listing()), std::nullopt);
  run.claim(1, {}).rule({.last = 1, .every = {}, .best = {}});
  run.claim(2, {}).rule({.last = {}, .every = 5, .best = kByAccuracy});
  EXPECT_EQ(recorded_keep(run.listing())->every, 5U);
  EXPECT_EQ(recorded_keep(run.listing())->best, kByAccuracy);
  run.lost_claim(3);
  EXPECT_EQ(recorded_keep(run.listing()), std::nullopt);
}

}  // namespace
}  // namespace deepfreeze

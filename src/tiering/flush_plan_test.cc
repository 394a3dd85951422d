#include "tiering/flush_plan.h"

#include <gtest/gtest.h>

#include <algorithm>

#include <initializer_list>

namespace deepfreeze {
namespace {

using Steps = std::vector<std::uint64_t>;

// Each step has one attempt, whose id is the step.
AttemptState committed(std::uint64_t step) {
  Manifest manifest;
  manifest.point = {.generation = 1, .step = step, .save_index = step, .attempt_id = step};
  return {.name = {step, step}, .manifest = manifest, .fault = {}};
}

TierSeen tier(std::initializer_list<std::uint64_t> steps, Keep keep = {},
              std::optional<std::uint64_t> every = {}) {
  RunListing listing;
  for (const std::uint64_t step : steps) listing.attempts.push_back(committed(step));
  listing.claims.push_back({.generation = 1, .record = GenerationRecord{.generation = 1}});
  return {every, std::move(keep), std::make_shared<RunListing>(std::move(listing))};
}

// For tests that change a listing.
RunListing& listing_of(TierSeen& seen) { return const_cast<RunListing&>(*seen.listing); }

Keep last(std::size_t count) { return {.last = count, .every = {}, .best = {}}; }

Steps waiting(const std::vector<TierSeen>& tiers, std::size_t number) {
  Steps steps;
  for (const Manifest& manifest : waiting_for(tiers, number)) steps.push_back(manifest.point.step);
  return steps;
}

Steps held(const std::vector<TierSeen>& tiers, std::size_t number) {
  Steps steps;
  for (const AttemptName& name : held_on(tiers, number)) steps.push_back(name.step);
  std::ranges::sort(steps);
  return steps;
}

TEST(FlushPlan, TheNewestGoesFirst) {
  EXPECT_EQ(waiting({tier({1, 2, 3}), tier({1})}, 1), (Steps{3, 2}));
}

TEST(FlushPlan, StepsThatAreNotMeantForATierDoNotWait) {
  EXPECT_EQ(waiting({tier({5, 10, 15, 20}), tier({}, {}, 10)}, 1), (Steps{20, 10}));
  EXPECT_EQ(held({tier({5, 10, 15, 20}), tier({}, {}, 10)}, 0), (Steps{10, 20}));
}

// While a tier is down, only the attempts that its rules would keep wait for it.
TEST(FlushPlan, StepsThatTheTierWouldDeleteAtOnceAreLeftOut) {
  EXPECT_EQ(waiting({tier({1, 2, 3, 4, 5}), tier({}, last(2))}, 1), (Steps{5, 4}));
  EXPECT_EQ(held({tier({1, 2, 3, 4, 5}), tier({}, last(2))}, 0), (Steps{4, 5}));
  const Keep every_second{.last = 1, .every = 2, .best = {}};
  EXPECT_EQ(waiting({tier({1, 2, 3, 4, 5}), tier({}, every_second)}, 1), (Steps{5, 4, 2}));
}

TEST(FlushPlan, ATierThatKeepsEverythingWaitsForAll) {
  EXPECT_EQ(held({tier({1, 2, 3}), tier({})}, 0), (Steps{1, 2, 3}));
}

// A tag keeps the near copy. The tier, which does not know of it, would delete the copy.
TEST(FlushPlan, ATagOnANearerCopyIsNoReasonToSendIt) {
  std::vector<TierSeen> tiers = {tier({1, 2, 3}), tier({2, 3}, last(2))};
  listing_of(tiers[0]).attempts.front().given = GivenTags{.tags = {{"release", "1.0"}}};
  EXPECT_EQ(waiting(tiers, 1), Steps{});
  EXPECT_EQ(held(tiers, 0), Steps{});
}

// Parity keeps the near copy.
TEST(FlushPlan, ParityOfANearerCopyIsNoReasonToSendIt) {
  std::vector<TierSeen> tiers = {tier({1, 2, 3}), tier({2, 3}, last(2))};
  listing_of(tiers[0]).attempts.front().has_parity = true;
  listing_of(tiers[0]).attempts.front().is_protected = true;
  EXPECT_EQ(waiting(tiers, 1), Steps{});
  EXPECT_EQ(held(tiers, 0), Steps{});
}

// A step that the tier had and has deleted by its rules does not come back from a nearer tier.
TEST(FlushPlan, ADeletedStepIsNotSentAgain) {
  EXPECT_EQ(waiting({tier({1, 2, 3}), tier({2, 3}, last(2))}, 1), Steps{});
  std::vector<TierSeen> deleting = {tier({1, 2, 3}), tier({2, 3})};
  listing_of(deleting[1]).half_deleted.push_back({1, 1});
  EXPECT_EQ(waiting(deleting, 1), Steps{});
}

TEST(FlushPlan, AnAttemptThatWasAbortedThereIsDecided) {
  std::vector<TierSeen> tiers = {tier({1}), tier({1})};
  listing_of(tiers[1]).attempts[0].manifest->outcome = Outcome::kAborted;
  EXPECT_EQ(waiting(tiers, 1), Steps{});
}

TEST(FlushPlan, AManifestThatRottedThereIsSentAgain) {
  std::vector<TierSeen> tiers = {tier({1}), tier({1})};
  listing_of(tiers[1]).attempts[0].manifest.reset();
  listing_of(tiers[1]).attempts[0].fault = Error(ErrorCode::kCorrupt, "rot");
  EXPECT_EQ(waiting(tiers, 1), Steps{1});
}

TEST(FlushPlan, OnlyCommittedAttemptsAreSent) {
  std::vector<TierSeen> tiers = {tier({1, 2}), tier({})};
  listing_of(tiers[0]).attempts[1].manifest.reset();
  EXPECT_EQ(waiting(tiers, 1), Steps{1});
}

TEST(FlushPlan, TheLastTierTakesFromTheOneInBetween) {
  const std::vector<TierSeen> tiers = {tier({3}), tier({2, 3}), tier({1})};
  EXPECT_EQ(waiting(tiers, 2), (Steps{3, 2}));
  EXPECT_EQ(held(tiers, 0), Steps{});        // the second tier has both
  EXPECT_EQ(held(tiers, 1), (Steps{2, 3}));  // and keeps them
}

TEST(FlushPlan, ATierInBetweenThatSkipsAStepDoesNotLetItGo) {
  const std::vector<TierSeen> tiers = {tier({5, 10}), tier({10}, {}, 10), tier({}, {}, 5)};
  EXPECT_EQ(held(tiers, 0), Steps{5});  // the second tier holds step 10
  EXPECT_EQ(held(tiers, 1), (Steps{5, 10}));
}

TEST(FlushPlan, NothingIsHeldForTheLastTier) { EXPECT_EQ(held({tier({1}), tier({})}, 1), Steps{}); }

// Each step has one file, of as many bytes as its number.
TierSeen sized(std::initializer_list<std::uint64_t> steps) {
  TierSeen seen = tier(steps);
  for (AttemptState& attempt : listing_of(seen).attempts) {
    attempt.manifest->files.resize(1);
    attempt.manifest->files[0].bytes = attempt.name.step;
  }
  return seen;
}

TEST(NearUseTest, OnlyWhatTheRulesLetGoAndATierWaitsForIsHeld) {
  const TierSeen near = sized({10, 200, 3000});
  const std::vector<AttemptName> held = {{200, 200}, {3000, 3000}};
  EXPECT_EQ(near_use(*near.listing, last(1), held),
            (NearUse{.bytes = 3210, .held_bytes = 200, .newest_bytes = 3000}));
  EXPECT_EQ(near_use(*near.listing, last(2), held).held_bytes, 0U);
  EXPECT_EQ(near_use(*near.listing, {}, held).held_bytes, 0U);
  EXPECT_EQ(near_use(*near.listing, last(1), {}).held_bytes, 0U);
}

TEST(NearUseTest, AnAttemptThatWasGivenUpTakesNothing) {
  TierSeen near = sized({10, 200, 3000});
  listing_of(near).attempts[1].manifest->outcome = Outcome::kAborted;
  const std::vector<AttemptName> held = {{200, 200}};
  EXPECT_EQ(near_use(*near.listing, last(1), held),
            (NearUse{.bytes = 3010, .held_bytes = 0, .newest_bytes = 3000}));
}

}  // namespace
}  // namespace deepfreeze

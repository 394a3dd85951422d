#include "manifest/history.h"

#include <gtest/gtest.h>

#include "manifest/listing_maker.h"

namespace deepfreeze {
namespace {

std::vector<std::uint64_t> steps_of(const std::vector<Manifest>& manifests) {
  std::vector<std::uint64_t> steps;
  for (const Manifest& manifest : manifests) steps.push_back(manifest.point.step);
  return steps;
}

TEST(History, ARollbackIsNewerThanTheHigherStepsItAbandoned) {
  ListingMaker run;
  run.claim(1, {}).commit(1, 100).commit(1, 150).claim(2, make_point(1, 100)).commit(2, 101);
  EXPECT_EQ(steps_of(newest_first(run.listing())), (std::vector<std::uint64_t>{101, 150, 100}));
}

TEST(History, OrdersByGenerationThenStepThenSaveIndex) {
  const Point base{.generation = 2, .step = 5, .save_index = 7, .attempt_id = 9};
  EXPECT_TRUE(older({1, 6, 8, 1}, base));
  EXPECT_TRUE(older({2, 4, 8, 10}, base));
  EXPECT_TRUE(older({2, 5, 6, 10}, base));
  EXPECT_FALSE(older(base, base));
}

TEST(History, OnlyCommittedAttemptsCount) {
  ListingMaker run;
  run.claim(1, {}).commit(1, 1).abort(1, 2).undecided(3).bad(4).abort(9, 5);
  EXPECT_EQ(steps_of(newest_first(run.listing())), std::vector<std::uint64_t>{1});
  EXPECT_EQ(highest_generation(run.listing()), 1U);
}

TEST(History, TheHighestGenerationMayBeClaimedOrCommitted) {
  EXPECT_EQ(highest_generation({}), 0U);
  ListingMaker claimed;
  claimed.commit(2, 1).claim(3, {});
  EXPECT_EQ(highest_generation(claimed.listing()), 3U);
  ListingMaker lost_claims;
  lost_claims.claim(1, {}).commit(4, 1);
  EXPECT_EQ(highest_generation(lost_claims.listing()), 4U);
}

struct LineCase {
  std::string name;
  RunListing listing;
  std::vector<Point> on_line;
  std::vector<Point> abandoned;
};

// 1 runs to 150; 2 goes on from 100; 3 goes on from 120 of 2.
ListingMaker three_generations() {
  ListingMaker run;
  run.claim(1, {}).claim(2, make_point(1, 100)).claim(3, make_point(2, 120));
  return run;
}

std::vector<LineCase> line_cases() {
  ListingMaker scratch;
  scratch.claim(1, {}).commit(1, 1).claim(2, {});
  ListingMaker claim_alone;
  claim_alone.claim(1, {}).commit(1, 150).claim(2, make_point(1, 100));
  ListingMaker lost;
  lost.claim(1, {}).lost_claim(2).commit(2, 5);
  ListingMaker no_claims;
  no_claims.commit(1, 1).commit(3, 5);
  ListingMaker lost_below;
  lost_below.lost_claim(2).claim(3, make_point(2, 10));
  ListingMaker cycle;
  cycle.claim(1, make_point(2, 9)).claim(2, make_point(1, 5)).claim(3, make_point(3, 1));
  ListingMaker skipped;  // generation 2 claimed, and then nobody went on from it
  skipped.claim(1, {}).claim(2, make_point(1, 50)).claim(3, make_point(1, 70));
  return {
      {"chain",
       three_generations().listing(),
       {make_point(3, 500), make_point(2, 120), make_point(2, 101), make_point(1, 100)},
       {make_point(2, 121), make_point(1, 101), make_point(1, 150)}},
      {"from scratch", scratch.listing(), {make_point(2, 1)}, {make_point(1, 1)}},
      {"claim alone", claim_alone.listing(), {make_point(1, 100)}, {make_point(1, 150)}},
      {"lost record", lost.listing(), {make_point(2, 5), make_point(1, 999)}, {}},
      {"no claims", no_claims.listing(), {make_point(3, 5), make_point(1, 1)}, {}},
      {"lost below",
       lost_below.listing(),
       {make_point(3, 1), make_point(2, 10), make_point(1, 999)},
       {make_point(2, 11)}},
      {"not falling", cycle.listing(), {make_point(3, 1)}, {make_point(2, 1), make_point(1, 1)}},
      {"skipped", skipped.listing(), {make_point(1, 70)}, {make_point(2, 60), make_point(1, 71)}},
  };
}

TEST(History, TheLineGoesBackThroughTheResumedFromPoints) {
  for (const LineCase& line : line_cases()) {
    for (const Point& point : line.on_line) {
      EXPECT_TRUE(on_current_line(line.listing, point))
          << line.name << ": generation " << point.generation << " step " << point.step;
    }
    for (const Point& point : line.abandoned) {
      EXPECT_FALSE(on_current_line(line.listing, point))
          << line.name << ": generation " << point.generation << " step " << point.step;
    }
  }
}

TEST(History, TwoSavesOfTheStepResumedFromAreToldApart) {
  ListingMaker run;
  run.claim(1, {}).claim(2, Point{1, 100, 7, 0});
  EXPECT_TRUE(on_current_line(run.listing(), {1, 100, 7, 0}));
  EXPECT_FALSE(on_current_line(run.listing(), {1, 100, 8, 0}));
  EXPECT_TRUE(on_current_line(run.listing(), {1, 99, 8, 0}));
}

}  // namespace
}  // namespace deepfreeze

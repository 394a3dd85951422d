#include "manifest/retention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <limits>

#include "crash/attempt_maker.h"
#include "manifest/claims.h"
#include "manifest/in_doubt.h"
#include "manifest/listing_maker.h"
#include "manifest/record_file.h"
#include "manifest/two_nodes.h"
#include "support/passing_vfs.h"
#include "support/sim_disk.h"

namespace deepfreeze {
namespace {

// As generation * 10000 + step.
std::vector<std::uint64_t> ids_of(const std::vector<AttemptName>& names) {
  std::vector<std::uint64_t> ids;
  for (const AttemptName& name : names) ids.push_back(name.attempt_id);
  return ids;
}

std::vector<std::uint64_t> ids(std::uint64_t generation, std::uint64_t first, std::uint64_t last) {
  std::vector<std::uint64_t> result;
  for (std::uint64_t step = first; step <= last; ++step) {
    result.push_back(generation * 10000 + step);
  }
  return result;
}

Keep last(std::size_t count) { return {.last = count, .every = {}, .best = {}}; }

struct Case {
  std::string name;
  ListingMaker run;
  Keep keep;
  std::vector<std::uint64_t> expected;
};

ListingMaker straight(std::uint64_t steps) {
  ListingMaker run;
  return run.claim(1, {}).commit(1, 1, steps);
}

// 100 to 150 in generation 1, then from 100 again.
ListingMaker rolled_back() {
  ListingMaker run;
  return run.claim(1, {}).commit(1, 100, 150).claim(2, make_point(1, 100));
}

ListingMaker with_losses(std::vector<double> losses) {
  ListingMaker run;
  run.claim(1, {});
  std::uint64_t step = 0;
  for (const double loss : losses) run.commit(1, ++step).metric("loss", loss);
  return run;
}

Keep best(Keep::Better better, std::size_t count) {
  return {.last = {}, .every = {}, .best = Keep::Best{"loss", better, count}};
}

TEST(Retention, KeepsWhatTheRulesSay) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<Case> cases = {
      {"no rule", straight(5), {}, {}},
      {"nothing there", {}, last(1), {}},
      {"last 3", straight(5), last(3), {10001, 10002}},
      {"last 0 still keeps the newest", straight(2), last(0), {10001}},
      {"every 2 keeps the newest too",
       straight(5),
       {.last = {}, .every = 2, .best = {}},
       {10001, 10003}},
      {"every 0 keeps no more", straight(2), {.last = {}, .every = 0, .best = {}}, {10001}},
      {"last and every", straight(6), {.last = 2, .every = 3, .best = {}}, {10001, 10002, 10004}},
      {"best by the smallest", with_losses({3, 1, 2, 9}), best(Keep::Better::kMin, 2), {10001}},
      {"best by the greatest",
       with_losses({3, 1, 9, 2}),
       best(Keep::Better::kMax, 1),
       {10001, 10002}},
      {"NaN is never best", with_losses({kNan, 5, 6}), best(Keep::Better::kMin, 2), {10001}},
      {"of equals the newer is best", with_losses({1, 1, 5}), best(Keep::Better::kMin, 1), {10001}},
      {"bad and undecided ones are left alone", straight(2).undecided(3).bad(4), last(1), {10001}},
      {"aborted ones go without a rule", straight(2).abort(1, 3), {}, {10003}},
      {"aborted ones don't count", straight(2).abort(1, 3), last(2), {10003}},
      {"bad ones don't count", straight(2).bad(3), last(2), {}},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(ids_of(expired(c.run.listing(), c.keep)), c.expected) << c.name;
  }
}

TEST(Retention, AfterARollbackNothingGoesBeforeNewerStepsExist) {
  const std::vector<Case> cases = {
      {"claimed only", rolled_back(), last(3), {}},
      {"one new", rolled_back().commit(2, 101), last(3), {}},
      {"two new", rolled_back().commit(2, 101, 102), last(3), {}},
      {"three new: 100 is fourth, 101 to 150 are abandoned", rolled_back().commit(2, 101, 103),
       last(3), ids(1, 100, 150)},
      {"default of one",
       rolled_back().commit(2, 101),
       {.last = {}, .every = 1000, .best = {}},
       ids(1, 100, 150)},
      {"every does not keep what is abandoned",
       rolled_back().commit(2, 101),
       {.last = {}, .every = 50, .best = {}},
       ids(1, 101, 150)},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(ids_of(expired(c.run.listing(), c.keep)), c.expected) << c.name;
  }
}

TEST(Retention, AClaimAloneKeepsBothTheNewestAndItsOwnStart) {
  ListingMaker run;
  run.claim(1, {}).commit(1, 98, 102).claim(2, make_point(1, 100));
  EXPECT_EQ(ids_of(expired(run.listing(), last(1))), ids(1, 98, 99));
}

TEST(Retention, WhatMayBeOnTheLineBelowALostClaimStays) {
  ListingMaker run;
  run.claim(1, {}).commit(1, 1, 10).lost_claim(2).commit(2, 6, 8);
  EXPECT_EQ(ids_of(expired(run.listing(), last(2))), ids(2, 6, 6));
  run.claim(3, make_point(2, 7)).commit(3, 8, 9);
  EXPECT_EQ(ids_of(expired(run.listing(), last(2))), ids(2, 6, 8));
  EXPECT_EQ(ids_of(expired(run.listing(), best(Keep::Better::kMin, 1))),
            (std::vector<std::uint64_t>{20006, 20007, 20008, 30008}));
}

TEST(Retention, WhatWasGivenATagStaysAndPushesOutNothing) {
  const auto tagged = [] {
    ListingMaker run;
    run.claim(1, {}).commit(1, 1).commit(1, 2).given({{"release", "1"}}).commit(1, 3);
    return run.given({}).commit(1, 4).tags_lost().commit(1, 5, 6);
  };
  EXPECT_EQ(ids_of(expired(tagged().listing(), last(1))),
            (std::vector<std::uint64_t>{10001, 10003, 10005}))
      << "3 had tags, 4 may have some";
  EXPECT_EQ(ids_of(expired(tagged().listing(), last(2))),
            (std::vector<std::uint64_t>{10001, 10003}));
  ListingMaker left = tagged();
  left.claim(2, make_point(1, 1)).commit(2, 2, 3);
  EXPECT_EQ(ids_of(expired(left.listing(), last(1))),
            (std::vector<std::uint64_t>{10001, 10003, 10005, 10006, 20002}))
      << "abandoned steps, too";
}

// The newest step that all nodes have protected, and newer ones that may get there.
TEST(Retention, WhatParityProtectsStaysUntilANewerOneIsProtected) {
  RunListing listing = straight(6).listing();
  const auto gone = [&] { return ids_of(expired(listing, last(1))); };
  const auto at = [&](std::size_t step) -> AttemptState& { return listing.attempts[step - 1]; };
  for (const std::size_t step : {1U, 2U, 3U, 5U}) at(step).has_parity = true;
  EXPECT_EQ(gone(), (std::vector<std::uint64_t>{10004}));
  at(4).is_protected = true;  // without parity it means nothing
  at(1).is_protected = true;
  at(2).is_protected = true;
  EXPECT_EQ(gone(), (std::vector<std::uint64_t>{10001, 10004})) << "others may have 3 marked";
  at(5).is_given_up = true;  // a node's parity failed: nothing waits for it
  EXPECT_EQ(gone(), (std::vector<std::uint64_t>{10001, 10004, 10005}));
  at(5).is_given_up = false;
  at(5).is_protected = true;
  EXPECT_EQ(gone(), ids(1, 1, 4));
  EXPECT_EQ(ids_of(expired(listing, {})), std::vector<std::uint64_t>());
}

// If each of them failed on one node, the others' disks would fill with all of them.
TEST(Retention, StepsThatGotNoParityDoNotPileUp) {
  RunListing listing = straight(100).listing();
  for (AttemptState& attempt : listing.attempts) attempt.has_parity = attempt.is_given_up = true;
  listing.attempts[0].is_protected = true;
  listing.attempts[0].is_given_up = false;
  EXPECT_EQ(expired(listing, last(2)).size(), 100U - 3);
}

// Generation 2 went on from step 4 of generation 1.
TEST(Retention, AProtectedStepOfAnAbandonedLineProtectsNoOther) {
  ListingMaker run;
  run.claim(1, {}).commit(1, 3, 5).claim(2, make_point(1, 4)).commit(2, 5, 6);
  RunListing listing = run.listing();
  const auto at = [&](std::size_t place) -> AttemptState& { return listing.attempts[place]; };
  at(2).has_parity = at(2).is_protected = true;
  EXPECT_EQ(ids_of(expired(listing, last(1))), (std::vector<std::uint64_t>{10003, 10004, 20005}))
      << "it is the only one";
  at(1).has_parity = at(1).is_protected = true;
  EXPECT_EQ(ids_of(expired(listing, last(1))), (std::vector<std::uint64_t>{10003, 10005, 20005}));
}

// The abandoned step 5 is protected, the line's 4 has parity and may be.
TEST(Retention, AProtectedStepOfAnAbandonedLineEndsNothing) {
  ListingMaker run;
  run.claim(1, {}).commit(1, 3, 5).claim(2, make_point(1, 4)).commit(2, 5, 6);
  RunListing listing = run.listing();
  for (const std::size_t place : {0U, 1U, 2U}) listing.attempts[place].has_parity = true;
  for (const std::size_t place : {0U, 2U}) listing.attempts[place].is_protected = true;
  EXPECT_EQ(ids_of(expired(listing, last(1))), (std::vector<std::uint64_t>{10005, 20005}));
}

TEST(Retention, AProtectedStepWithNaNProtectsNoOther) {
  ListingMaker run;
  run.claim(1, {}).commit(1, 1).commit(1, 2).commit(1, 3).non_finite(1).commit(1, 4);
  RunListing listing = run.listing();
  const auto at = [&](std::size_t place) -> AttemptState& { return listing.attempts[place]; };
  for (const std::size_t place : {0U, 1U, 2U}) at(place).has_parity = at(place).is_protected = true;
  EXPECT_EQ(ids_of(expired(listing, last(1))), (std::vector<std::uint64_t>{10001}));
}

TEST(Retention, WhatParityProtectsCountsBesideTheRules) {
  RunListing listing = straight(4).listing();
  listing.attempts[0].has_parity = listing.attempts[0].is_protected = true;
  EXPECT_EQ(ids_of(expired(listing, last(2))), (std::vector<std::uint64_t>{10002}));
}

// Nobody has chosen to leave it: a program only did not restore.
TEST(Retention, AnEarlierLineStaysUnlessItIsToGo) {
  ListingMaker run;
  run.claim(1, {}).commit(1, 1, 3).claim(2, make_point(1, 3)).commit(2, 4, 5);
  run.claim(3, {}).commit(3, 1, 4);
  std::vector<std::uint64_t> earlier = ids(1, 1, 3);
  for (const std::uint64_t id : ids(2, 4, 5)) earlier.push_back(id);
  std::vector<std::uint64_t> all = earlier;
  for (const std::uint64_t id : ids(3, 1, 2)) all.push_back(id);
  EXPECT_EQ(ids_of(expired(run.listing(), last(2))), ids(3, 1, 2));
  EXPECT_EQ(ids_of(expired(run.listing(), last(2), EarlierLines::kGo)), all);
  // A process that continues the new line has not chosen either.
  run.claim(4, make_point(3, 4)).commit(4, 5, 6);
  EXPECT_EQ(ids_of(expired(run.listing(), last(2))), ids(3, 1, 4));
  // But a process that returns to the earlier one has left the new one.
  run.claim(5, make_point(2, 5)).commit(5, 6, 7);
  std::vector<std::uint64_t> left = earlier;
  for (const std::uint64_t id : ids(3, 1, 4)) left.push_back(id);
  for (const std::uint64_t id : ids(4, 5, 6)) left.push_back(id);
  EXPECT_EQ(ids_of(expired(run.listing(), last(2))), left);
}

TEST(Retention, AnAbandonedStepIsNeverBest) {
  ListingMaker run;
  run.claim(1, {}).commit(1, 1).metric("loss", 5).commit(1, 2).metric("loss", 0);
  run.claim(2, make_point(1, 1)).commit(2, 2).metric("loss", 6);
  EXPECT_EQ(ids_of(expired(run.listing(), best(Keep::Better::kMin, 1))), ids(1, 2, 2));
}

// Steps 1 to 5 with less loss each; the last three diverged.
ListingMaker diverged() {
  ListingMaker run;
  run.claim(1, {});
  for (std::uint64_t step = 1; step <= 5; ++step) {
    run.commit(1, step).metric("loss", 5.0 - static_cast<double>(step));
    run.non_finite(step <= 2 ? 0 : step);
  }
  return run;
}

TEST(Retention, WhatIsNotFiniteIsNeverBestNorPushesOutTheLastThatIs) {
  Keep best_and_last = best(Keep::Better::kMin, 1);
  best_and_last.last = 2;
  const std::vector<Case> cases = {
      {"last 1", diverged(), last(1), {10001, 10003, 10004}},
      {"last 4 has it anyway", diverged(), last(4), {10001}},
      {"best", diverged(), best_and_last, {10001, 10003}},
      {"a finite one again", diverged().commit(1, 6).non_finite(0), last(1), ids(1, 1, 5)},
      {"what was not looked at is taken for finite", diverged().commit(1, 6), last(1),
       ids(1, 1, 5)},
      {"none is finite", straight(1).non_finite(1).commit(1, 2).non_finite(2), last(1), {10001}},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(ids_of(expired(c.run.listing(), c.keep)), c.expected) << c.name;
  }
}

TEST(Retention, AnAbandonedStepIsNotTheLastFiniteOne) {
  ListingMaker run;
  run.claim(1, {}).commit(1, 1, 2).claim(2, make_point(1, 1)).commit(2, 2).non_finite(1);
  EXPECT_EQ(ids_of(expired(run.listing(), last(1))), ids(1, 2, 2));
}

// Steps 1 to 3 of generation 1, the third in doubt, and so many of generation 2, from step 2 on.
ListingMaker left_in_doubt(std::uint64_t steps) {
  ListingMaker run;
  run.claim(1, {}).commit(1, 1, 2).in_doubt(1, 3).claim(2, make_point(1, 2));
  return steps == 0 ? run : run.commit(2, 3, 2 + steps);
}

TEST(Retention, InDoubtAndOldGoesWhenItWouldIfItWereCommitted) {
  constexpr std::uint64_t kIt = 10003;
  ListingMaker on_line;
  on_line.claim(1, {}).commit(1, 1, 2).in_doubt(1, 3).claim(2, make_point(1, 4)).commit(2, 5, 6);
  ListingMaker present;
  present.claim(1, {}).commit(1, 1, 2).in_doubt(1, 3).commit(1, 4, 6);
  const std::vector<Case> cases = {
      {"no rule", left_in_doubt(3), {}, {}},
      {"no newer one yet", left_in_doubt(0), last(1), {10001}},
      {"abandoned, one newer", left_in_doubt(1), last(1), {10001, 10002, kIt}},
      {"abandoned, too few newer", left_in_doubt(1), last(2), {10001}},
      {"abandoned: every keeps it not",
       left_in_doubt(1),
       {.last = {}, .every = 3, .best = {}},
       {10001, 10002, kIt}},
      {"on the line: last", on_line, last(2), {10001, 10002, kIt}},
      {"on the line: too few newer", on_line, last(3), {10001}},
      {"on the line: every", on_line, {.last = 1, .every = 3, .best = {}}, {10001, 10002, 20005}},
      {"of the present generation", present, last(1), {10001, 10002, 10004, 10005}},
      {"in a directory without digits",
       left_in_doubt(3).without_digits(),
       last(1),
       {10001, 10002, 20003, 20004}},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(ids_of(expired(c.run.listing(), c.keep)), c.expected) << c.name;
  }
}

TEST(Retention, InDoubtItCountsForNothingElse) {
  ListingMaker run;
  run.claim(1, {}).commit(1, 1, 2).in_doubt(1, 3).in_doubt(1, 4).claim(2, make_point(1, 4));
  EXPECT_EQ(ids_of(expired(run.listing(), last(1))), ids(1, 1, 1)) << "2 is the newest";
  EXPECT_EQ(ids_of(expired(run.listing(), last(2))), ids(1, 1, 0)) << "nor towards last";
  run.commit(2, 5);
  EXPECT_EQ(ids_of(expired(run.listing(), last(2))), ids(1, 1, 1)) << "each for itself";
  run.commit(2, 6);
  EXPECT_EQ(ids_of(expired(run.listing(), last(2))), ids(1, 1, 4));
}

TEST(Retention, InDoubtInAnEarlierLineStaysUnlessThatIsToGo) {
  ListingMaker run;
  run.claim(1, {}).in_doubt(1, 3).claim(2, {}).commit(2, 1, 2);
  EXPECT_EQ(ids_of(expired(run.listing(), last(1))), ids(2, 1, 1));
  EXPECT_EQ(ids_of(expired(run.listing(), last(1), EarlierLines::kGo)),
            (std::vector<std::uint64_t>{20001, 10003}));
}

// Its metrics are in rank 0's file, on another node.
TEST(Retention, InDoubtItMayBeAmongTheBest) {
  ListingMaker run;
  run.claim(1, {}).commit(1, 1).metric("loss", 1).in_doubt(1, 2).claim(2, make_point(1, 2));
  run.commit(2, 3).metric("loss", 5).commit(2, 4).metric("loss", 6);
  EXPECT_EQ(ids_of(expired(run.listing(), best(Keep::Better::kMin, 1))), ids(2, 3, 3));
  ListingMaker left;
  left.claim(1, {}).commit(1, 1).metric("loss", 1).in_doubt(1, 2).claim(2, make_point(1, 1));
  left.commit(2, 2).metric("loss", 5);
  EXPECT_EQ(ids_of(expired(left.listing(), best(Keep::Better::kMin, 1))), ids(1, 2, 2))
      << "an abandoned one is never best";
}

// A run of generation 1 with steps 1 to `steps`; attempt id = step.
std::string make_run(SimDisk& disk, std::uint64_t steps) {
  const auto run = create_or_open_run(disk, {});
  EXPECT_TRUE(run.has_value());
  EXPECT_TRUE(claim_generation(disk, run->run_id, {}).has_value());
  for (std::uint64_t step = 1; step <= steps; ++step) {
    const auto saved = save_attempt(disk, make_identity(run->run_id, {1, step, step, step}));
    EXPECT_TRUE(saved.has_value()) << saved.error().message();
  }
  return run->run_id;
}

TEST(CollectGarbage, DeletesWhatExpiredAndCountsItsBytes) {
  SimDisk disk;
  make_run(disk, 3);
  const auto told = collect_garbage(disk, last(1), {.dry_run = true});
  ASSERT_TRUE(told.has_value()) << told.error().message();
  EXPECT_EQ(told->removed.size(), 2U);
  EXPECT_EQ(read_run(disk)->attempts.size(), 3U);
  const auto report = collect_garbage(disk, last(1));
  ASSERT_TRUE(report.has_value()) << report.error().message();
  EXPECT_EQ(ids_of(report->removed), (std::vector<std::uint64_t>{1, 2}));
  EXPECT_EQ(report->bytes_freed, told->bytes_freed);
  EXPECT_GT(report->bytes_freed, 2 * kTestDataBytes);
  const auto listing = read_run(disk);
  ASSERT_EQ(listing->attempts.size(), 1U);
  EXPECT_EQ(listing->attempts[0].name.step, 3U);
  EXPECT_TRUE(verify_attempt(disk, *listing->attempts[0].manifest).has_value());
}

// The directories that are synced, of steps 1 to 4.
std::size_t settled_of(std::size_t last, const std::vector<std::uint64_t>& non_finite) {
  SimDisk disk;
  make_run(disk, 4);
  RunListing listing = *read_run(disk);
  for (AttemptState& attempt : listing.attempts) {
    if (std::ranges::find(non_finite, attempt.name.step) != non_finite.end())
      attempt.manifest->non_finite = 1;
  }
  const std::size_t before = disk.operation_count();
  EXPECT_TRUE(settle_newest(disk, listing, last).has_value());
  return disk.operation_count() - before;
}

TEST(Retention, TheLastFiniteOneIsMadeDurableToo) {
  EXPECT_EQ(settled_of(1, {}), 1U);
  EXPECT_EQ(settled_of(1, {4}), 2U);
  EXPECT_EQ(settled_of(1, {3, 4}), 2U) << "not what lies between";
  EXPECT_EQ(settled_of(2, {4}), 2U);
  EXPECT_EQ(settled_of(2, {3, 4}), 3U);
  EXPECT_EQ(settled_of(2, {2, 3, 4}), 3U);
  EXPECT_EQ(settled_of(1, {1, 2, 3, 4}), 1U);
}

TEST(CollectGarbage, FinishesWhatAnotherOneBegan) {
  SimDisk disk;
  make_run(disk, 2);
  const std::string directory = attempt_dir_name({1, 1});
  ASSERT_TRUE(
      disk.rename_no_replace(directory + "/manifest.json", directory + "/manifest.deleted.json"));
  const auto listing = read_run(disk);
  ASSERT_EQ(listing->half_deleted.size(), 1U);
  EXPECT_EQ(listing->attempts.size(), 1U);
  const auto report = collect_garbage(disk, {});
  ASSERT_TRUE(report.has_value()) << report.error().message();
  EXPECT_EQ(ids_of(report->removed), std::vector<std::uint64_t>{1});
  EXPECT_FALSE(disk.contents(directory + "/manifest.deleted.json").has_value());
  EXPECT_TRUE(read_run(disk)->half_deleted.empty());
}

// Step 1 has parity that another one protects; that of step 2 is begun after the run was listed.
TEST(CollectGarbage, LeavesACheckpointOfWhichParityIsBegunMeanwhile) {
  SimDisk disk;
  make_run(disk, 4);
  const auto plant = [&](std::uint64_t step, std::string_view name) {
    disk.plant(attempt_dir_name({step, step}) + "/" + std::string(name), "");
  };
  plant(1, parity_file_name(0, 4));
  plant(3, parity_file_name(0, 4));
  plant(3, kProtectedFile);
  const auto begin = [&](const RunListing&) {
    plant(1, unfinished_parity_name(7));
    plant(2, unfinished_parity_name(7));
    return std::vector<AttemptName>();
  };
  const auto report = collect_garbage(disk, last(1), {.held = begin});
  ASSERT_TRUE(report.has_value()) << report.error().message();
  EXPECT_EQ(ids_of(report->removed), std::vector<std::uint64_t>{1});
  const auto left = read_run(disk);
  ASSERT_EQ(left->attempts.size(), 3U);
  EXPECT_TRUE(left->attempts[0].has_parity);
  EXPECT_TRUE(left->attempts[1].has_parity && left->attempts[1].is_protected);
  EXPECT_FALSE(left->attempts[2].has_parity || left->attempts[2].is_protected);
}

// A process that does not know of the deletion marks the checkpoint meanwhile.
class MarksAtTheEnd final : public PassingVfs {
 public:
  explicit MarksAtTheEnd(SimDisk& disk) : PassingVfs(disk), disk_(disk) {}
  Status remove_dir(std::string_view name) override {
    if (std::exchange(is_first_, false)) disk_.plant(join_name(name, kUnprotectedFile), "");
    return PassingVfs::remove_dir(name);
  }

 private:
  SimDisk& disk_;
  bool is_first_ = true;
};

TEST(CollectGarbage, AMarkThatComesMeanwhileLeavesNothingBehind) {
  SimDisk disk;
  make_run(disk, 2);
  MarksAtTheEnd racing(disk);
  const auto report = collect_garbage(racing, last(1));
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_EQ(ids_of(report->removed), std::vector<std::uint64_t>{1});
  EXPECT_EQ(read_run(disk)->attempts.size(), 1U);
}

// One that nobody will decide: its node is lost. The next job has saved on both nodes.
class CollectInDoubt : public testing::Test {
 protected:
  CollectInDoubt() {
    nodes_.claim();
    nodes_.seal(3, 1);
    left_ = nodes_.identity(3, 1);
    nodes_.claim(TwoNodes::kDecider, Point{1, 2, 2, 2});
    nodes_.seal(4);
    nodes_.other.plant(TwoNodes::manifest_of(4), nodes_.committed_text(4));
  }
  RunListing listing() { return read_run(nodes_.other).value(); }
  // Or gone, but for an empty directory: the files that are left never pass for undecided.
  bool is_left_whole_or_aborted(SimDisk& disk) const {
    const RunListing found = read_run(disk).value();
    const AttemptState& first = found.attempts.front();
    return first.name.step == 4 || !first.undecided() || first.doubt || !first.has_sealed;
  }

  TwoNodes nodes_;
  Identity left_;
};

TEST_F(CollectInDoubt, ItIsAbortedBeforeItsFilesGo) {
  SimDisk& disk = nodes_.other;
  const auto told = collect_garbage(disk, last(1), {.dry_run = true});
  ASSERT_TRUE(told);
  EXPECT_EQ(ids_of(told->removed), std::vector<std::uint64_t>{3});
  EXPECT_TRUE(listing().attempts.at(0).doubt);
  const auto before = disk.clone();
  const auto report = collect_garbage(disk, last(1));
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_EQ(ids_of(report->removed), std::vector<std::uint64_t>{3});
  ASSERT_EQ(listing().attempts.size(), 1U);
  for (std::size_t index = before->operation_count(); index < disk.operation_count(); ++index) {
    const auto cut = before->clone();
    cut->crash_at(index);
    std::ignore = collect_garbage(*cut, last(1));
    for (const auto& image : cut->crash_images(200, index)) {
      EXPECT_TRUE(is_left_whole_or_aborted(*image)) << image->label();
      EXPECT_TRUE(collect_garbage(*image, last(1))) << image->label();
      EXPECT_FALSE(read_run(*image)->attempts.front().doubt) << image->label();
    }
  }
}

TEST_F(CollectInDoubt, AnAnswerThatCameFirstStands) {
  const RunListing before = listing();
  const auto keeps = [&](const RunListing&) {
    const Manifest committed = [&] {
      SimDisk whole;
      EXPECT_TRUE(begin_attempt(whole, name_of(left_)));
      for (const std::uint32_t rank : {0U, 1U}) {
        Identity own = left_;
        own.part.rank = rank;
        EXPECT_TRUE(write_and_seal(whole, own));
      }
      return commit_attempt(whole, make_request(left_)).value();
    }();
    EXPECT_TRUE(
        place_answer(nodes_.other, {left_, TwoNodes::kDecider}, encode_manifest(committed)));
    return std::vector<AttemptName>();
  };
  const auto report = collect_garbage(nodes_.other, last(1), {.held = keeps});
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_TRUE(report->removed.empty());
  EXPECT_TRUE(listing().attempts.at(0).committed());
}

TEST_F(CollectInDoubt, OneThatAnotherCollectorDeletedIsNoError) {
  const auto deletes = [&](const RunListing&) {
    EXPECT_TRUE(abort_attempt(nodes_.other, aborted_outcome(left_)));
    EXPECT_TRUE(remove_attempt(nodes_.other, name_of(left_)));
    return std::vector<AttemptName>();
  };
  const auto report = collect_garbage(nodes_.other, last(1), {.held = deletes});
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_TRUE(report->removed.empty());
}

TEST_F(CollectInDoubt, WithoutRoomForTheWordAbortedItStays) {
  nodes_.other.set_bytes_free(0);
  EXPECT_FALSE(collect_garbage(nodes_.other, last(1)));
  EXPECT_TRUE(listing().attempts.at(0).doubt);
  nodes_.other.set_bytes_free(1 << 20);
  EXPECT_TRUE(collect_garbage(nodes_.other, last(1)));
  EXPECT_EQ(listing().attempts.size(), 1U);
}

TEST(DeleteCheckpoint, DeletesNothingWhereTheNewestThatRemainsCantBeMadeDurable) {
  const std::pair<AttemptName, AttemptName> cases[] = {{{1, 1}, {3, 3}}, {{3, 3}, {2, 2}}};
  for (const auto& [name, newest_that_remains] : cases) {
    SimDisk disk;
    make_run(disk, 3);
    const auto whole = disk.clone();
    disk.fail_at(disk.operation_count(), 5);
    const Status refused = delete_checkpoint(disk, name);
    ASSERT_FALSE(refused);
    const std::string message = refused.error().message();
    EXPECT_TRUE(message.contains("sync")) << message;
    EXPECT_TRUE(message.contains(attempt_dir_name(newest_that_remains))) << message;
    EXPECT_EQ(read_run(disk)->attempts.size(), 3U);
    EXPECT_TRUE(delete_checkpoint(*whole, name));
    EXPECT_EQ(read_run(*whole)->attempts.size(), 2U);
    EXPECT_TRUE(delete_checkpoint(*whole, name)) << "gone already";
  }
}

TEST(DeleteCheckpoint, WhereTheRunCantBeReadItIsToldAndNothingElseGoes) {
  SimDisk whole;
  make_run(whole, 3);
  const auto counted = whole.clone();
  ASSERT_TRUE(delete_checkpoint(*counted, {1, 1}));
  std::size_t refused = 0;
  for (std::size_t index = 0; index < counted->read_count(); ++index) {
    const auto disk = whole.clone();
    disk->fail_read_at(index, EIO);
    const Status deleted = delete_checkpoint(*disk, {1, 1});
    if (!deleted) ++refused;
    const auto listing = read_run(*disk);  // once it has begun a collection ends it
    EXPECT_EQ(listing->attempts.size() + listing->half_deleted.size(), deleted ? 2U : 3U) << index;
    EXPECT_TRUE(delete_checkpoint(*disk, {1, 1})) << index;
  }
  EXPECT_GT(refused, 0U);
}

TEST(CollectGarbage, DeletesNothingWhereTheNewestCantBeMadeDurable) {
  SimDisk disk;
  make_run(disk, 2);
  disk.fail_at(disk.operation_count(), 5);  // the sync of step 2's directory
  EXPECT_FALSE(collect_garbage(disk, last(1)).has_value());
  EXPECT_EQ(read_run(disk)->attempts.size(), 2U);
}

}  // namespace
}  // namespace deepfreeze

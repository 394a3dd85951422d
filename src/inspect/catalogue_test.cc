#include "inspect/catalogue.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "manifest/listing_maker.h"
#include "restore/run_fixture.h"
#include "support/refuse_memory.h"

namespace deepfreeze::catalogue_test {
namespace {

std::vector<std::uint64_t> steps_of(const CataloguedRun& run) {
  std::vector<std::uint64_t> steps;
  for (const CataloguedStep& step : run.steps) steps.push_back(step.step);
  return steps;
}

TEST(Catalogue, HasTheCheckpointsOfARunNewestFirst) {
  ListingMaker maker;
  maker.claim(1, {}).commit(1, 1).metric("loss", 0.5).commit(1, 2).metric("loss", 0.1);
  maker.given({{"lr", "1"}}).commit(1, 3).metric("loss", 0.9).abort(1, 4).undecided(5);
  maker.claim(2, make_point(1, 2)).rule({.best = Keep::Best{.metric = "loss"}}).commit(2, 3);
  const CataloguedRun run = catalogued(maker.listing());
  EXPECT_EQ(steps_of(run), (std::vector<std::uint64_t>{3, 3, 2, 1}));
  EXPECT_FALSE(run.steps[0].abandoned);
  EXPECT_TRUE(run.steps[1].abandoned);
  EXPECT_EQ(run.steps[2].tags, (Tags{{"lr", "1"}}));
  EXPECT_EQ(run.steps[2].metrics.at("loss"), 0.1);
  EXPECT_EQ(run.best, 2U);
  EXPECT_EQ(run.faults, 0U);
}

TEST(Catalogue, CountsRecordsThatDoNotVerify) {
  ListingMaker maker;
  maker.claim(1, {}).commit(1, 1).tags_lost().bad(2).lost_claim(2);
  RunListing listing = maker.listing();
  EXPECT_EQ(catalogued(listing).faults, 3U);
  listing.run_rebuilt = true;
  EXPECT_EQ(catalogued(listing).faults, 4U);
}

TEST(Catalogue, CountsBytesOfSharedFilesApart) {
  ListingMaker maker;
  maker.claim(1, {}).commit(1, 1).commit(1, 2);
  RunListing listing = maker.listing();
  listing.attempts[0].manifest->files = {{.name = "a", .bytes = 10}, {.name = "b", .bytes = 5}};
  listing.attempts[1].manifest->files = {{.name = "a", .bytes = 7},
                                         {.name = "b", .bytes = 5, .origin = Origin{}}};
  const CataloguedRun run = catalogued(listing);
  EXPECT_EQ(bytes_of(run), 27U);
  EXPECT_EQ(shared_bytes_of(run), 5U);
}

TEST(Catalogue, ARunIsActiveForAnHour) {
  CataloguedRun run;
  run.claimed_micros = 5;
  EXPECT_TRUE(is_active(run, 5 + kActiveMicros - 1));
  EXPECT_FALSE(is_active(run, 5 + kActiveMicros));
  run.steps.push_back({.step = 1, .wall_micros = 10});
  EXPECT_TRUE(is_active(run, 5 + kActiveMicros));
  EXPECT_FALSE(is_active(run, 10 + kActiveMicros));
}

TEST(Catalogue, IsInTheOrderOfThePathsAndOneBadRunSpoilsNoOther) {
  RunFixture good;
  good.save({.step = 7, .ranks = {{f32_tensor("w", {1})}}});
  RunFixture bad;
  std::ofstream(bad.path() / "deepfreeze.json") << "{}";
  std::filesystem::remove(bad.path() / "generation-00000001.json");
  const std::filesystem::path tree = good.text() + "-tree";
  for (int i = 100; i < 200; ++i) {  // more than there are threads
    std::filesystem::create_directories(tree / std::to_string(i));
    const auto kind = std::filesystem::copy_options::recursive;
    std::filesystem::copy(i % 2 == 0 ? good.path() : bad.path(), tree / std::to_string(i), kind);
  }
  const auto rows = read_catalogue(tree, UseIndex::kNo);
  ASSERT_TRUE(rows);
  ASSERT_EQ(rows->size(), 100U);
  for (std::size_t i = 0; i < 100; ++i) {
    const CatalogueRow& row = (*rows)[i];
    EXPECT_EQ(row.path, tree / std::to_string(100 + i));
    EXPECT_EQ(row.run.has_value(), i % 2 == 0);
    if (row.run) {
      EXPECT_EQ(steps_of(*row.run), std::vector<std::uint64_t>{7});
    }
  }
  std::filesystem::remove_all(tree);
  EXPECT_FALSE(read_catalogue(tree, UseIndex::kNo));
}

struct Refused {
  std::size_t rows = 0;
  std::size_t all = 0;
};

// Each allocation of this thread is refused once.
Refused refuse_each(const std::filesystem::path& tree) {
  Refused refused;
  bool is_refused = true;
  for (std::size_t at = 0; is_refused; ++at) {
    is_refused = false;
    std::size_t count = 0;
    const MemoryRefusal refusal(::gettid(), [&] { return count++ == at && (is_refused = true); });
    const auto rows = read_catalogue(tree, UseIndex::kNo);
    if (!rows) {
      EXPECT_EQ(rows.error().code(), ErrorCode::kNoSpace) << at;
      ++refused.all;
      continue;
    }
    for (const CatalogueRow& row : *rows) {
      if (row.run) continue;
      EXPECT_EQ(row.run.error().code(), ErrorCode::kNoSpace) << row.run.error().message();
      ++refused.rows;
    }
  }
  return refused;
}

// No exception, no end of the program, and no thread that waits for ever.
TEST(Catalogue, WithoutMemoryIsAnErrorOfTheRunOrOfAll) {
  RunFixture run;
  run.save({.step = 7, .ranks = {{f32_tensor("w", {1})}}});
  const std::filesystem::path tree = run.text() + "-tree";
  std::filesystem::create_directories(tree);
  for (const char* name : {"a", "b"}) {
    std::filesystem::copy(run.path(), tree / name, std::filesystem::copy_options::recursive);
  }
  EXPECT_GT(refuse_each(tree).all, 0U);
  std::jthread([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(::sched_getcpu(), &one);
    ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
    const Refused refused = refuse_each(tree);
    EXPECT_GT(refused.rows, 0U) << "with one core, this thread reads all";
    EXPECT_GT(refused.all, 0U);
  }).join();
  std::filesystem::remove_all(tree);
}

}  // namespace
}  // namespace deepfreeze::catalogue_test

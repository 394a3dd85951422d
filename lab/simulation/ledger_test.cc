#include "ledger.h"

#include <gtest/gtest.h>

namespace deepfreeze::simulation {
namespace {

TEST(Ledger, MedianIsTheMiddle) {
  EXPECT_EQ(median({3}), 3);
  EXPECT_EQ(median({9, 1, 5}), 5);
  EXPECT_EQ(median({4, 1, 3, 2}), 2.5);
}

TEST(Ledger, TheFirstRankBeginsASaveAndTheLastMakesItDurable) {
  Ledger ledger({.ranks = 2, .nodes = 2, .saves = 1});
  ledger.save_begins(0, 10);
  ledger.save_begins(0, 12);
  ledger.durable(0, Place::kLocal, 15);
  ledger.durable(0, Place::kLocal, 17);
  EXPECT_EQ(ledger.saves()[0].local_seconds, 7);
  EXPECT_EQ(ledger.saves()[0].parallel_seconds, std::nullopt);
}

TEST(Ledger, KeepsTheWorstCollectiveOfASave) {
  Ledger ledger({.ranks = 3, .nodes = 3, .saves = 1});
  ledger.collective(0, {1, 2, 9});
  ledger.collective(0, {1, 2, 3});
  EXPECT_EQ(ledger.saves()[0].straggler_seconds, 7);
}

TEST(Load, SpreadsATransferOverItsTime) {
  const auto bins = load_of({{.start_seconds = 0.5, .end_seconds = 2.5, .bytes = 200}}, 1, 4);
  EXPECT_EQ(bins, (std::vector<double>{50, 100, 50, 0}));
}

TEST(Load, OfATransferWithoutDurationFallsIntoItsBin) {
  const auto bins = load_of({{.start_seconds = 1, .end_seconds = 1, .bytes = 7}}, 1, 2);
  EXPECT_EQ(bins, (std::vector<double>{0, 7}));
}

TEST(Load, BeyondTheEndCountsInTheLastBin) {
  const auto bins = load_of({{.start_seconds = 0, .end_seconds = 4, .bytes = 40}}, 1, 2);
  EXPECT_EQ(bins, (std::vector<double>{10, 30}));
}

TEST(Load, PeakIsOfTransfersAtOnce) {
  const Transfer first{.start_seconds = 0, .end_seconds = 2, .bytes = 20};
  const Transfer beside{.start_seconds = 1, .end_seconds = 3, .bytes = 10};
  const Transfer after{.start_seconds = 3, .end_seconds = 4, .bytes = 12};
  EXPECT_EQ(peak_of({}), 0);
  EXPECT_EQ(peak_of({after, first, beside}), 15);
  EXPECT_EQ(peak_of({first, {.start_seconds = 2, .end_seconds = 4, .bytes = 22}}), 11);
}

}  // namespace
}  // namespace deepfreeze::simulation

#include "pipeline/read_runs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "base/checked_math.h"

namespace deepfreeze {
namespace {

constexpr std::uint64_t kData = 10 * kSlabBytes + 1'000;

// Destinations that are never touched, only told apart by address.
std::span<std::byte> destination(std::uint64_t bytes) {
  static std::vector<std::byte> memory(kData);
  return std::span(memory).first(bytes);
}

ReadPiece piece(std::uint64_t begin, std::uint64_t end) {
  return {{begin, end}, destination(end - begin)};
}

std::vector<Extent> sources(const std::vector<ReadRun>& runs) {
  std::vector<Extent> found;
  for (const ReadRun& run : runs) found.push_back(run.source);
  return found;
}

TEST(PlanRuns, ReadsWholeBlocksAndJoinsNeighbours) {
  const std::vector<ReadPiece> pieces = {piece(70'000, 70'001), piece(10, 20),
                                         piece(5 * kBlockBytes, 5 * kBlockBytes + 1)};
  EXPECT_EQ(sources(plan_runs(pieces, kData)),
            (std::vector<Extent>{{0, 2 * kBlockBytes}, {5 * kBlockBytes, 6 * kBlockBytes}}));
}

TEST(PlanRuns, EndsWithTheData) {
  const std::vector<ReadPiece> pieces = {piece(kData - 1, kData)};
  EXPECT_EQ(sources(plan_runs(pieces, kData)),
            (std::vector<Extent>{{kData / kBlockBytes * kBlockBytes, kData}}));
}

TEST(PlanRuns, CutsAtTheSlabSizeAndSplitsThePiece) {
  const std::vector<ReadPiece> pieces = {piece(kBlockBytes + 5, kSlabBytes + kBlockBytes + 7)};
  const auto runs = plan_runs(pieces, kData);
  ASSERT_EQ(sources(runs),
            (std::vector<Extent>{{kBlockBytes, kBlockBytes + kSlabBytes},
                                 {kBlockBytes + kSlabBytes, 2 * kBlockBytes + kSlabBytes}}));
  ASSERT_EQ(runs[1].pieces.size(), 1U);
  EXPECT_EQ(runs[1].pieces[0].source,
            (Extent{kBlockBytes + kSlabBytes, kBlockBytes + kSlabBytes + 7}));
  EXPECT_EQ(runs[1].pieces[0].into.data(), pieces[0].into.data() + kSlabBytes - 5);
}

TEST(PlanRuns, OfNothingIsEmpty) {
  EXPECT_TRUE(plan_runs({}, kData).empty());
  EXPECT_TRUE(plan_runs(std::vector<ReadPiece>{piece(7, 7)}, kData).empty());
  EXPECT_TRUE(plan_runs({}, 0).empty());
}

using Bytes = std::map<std::pair<std::uint64_t, const std::byte*>, std::uint64_t>;

// Every (source, destination) stretch that is copied, with neighbours joined.
Bytes copies_of(std::vector<ReadPiece> pieces) {
  std::erase_if(pieces, [](const ReadPiece& p) { return p.source.size() == 0; });
  const auto key = [](const ReadPiece& p) {
    return std::pair(static_cast<const std::byte*>(p.into.data()) - p.source.begin, p.source.begin);
  };
  std::ranges::sort(pieces, {}, key);
  Bytes found;
  for (auto p = pieces.begin(); p != pieces.end();) {
    const auto first = p;
    std::uint64_t end = p->source.end;
    for (++p; p != pieces.end() && key(*p).first == key(*first).first && p->source.begin <= end;
         ++p) {
      end = std::max(end, p->source.end);
    }
    found[{first->source.begin, first->into.data()}] = end;
  }
  return found;
}

TEST(PlanRuns, RandomPiecesAreCoveredOnceByTheBlocksTheyTouchAndNoOthers) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed=" << seed);
    std::mt19937_64 random(seed);
    std::vector<ReadPiece> pieces;
    std::set<std::uint64_t> touched;
    for (std::uint64_t i = random() % 50; i > 0; --i) {
      const std::uint64_t begin = random() % kData;
      const std::uint64_t limit = seed % 2 == 0 ? 200'000 : 20'000'000;
      pieces.push_back(piece(begin, begin + random() % std::min(limit, kData - begin)));
      for (std::uint64_t at = begin; at < pieces.back().source.end;
           at = (at / kBlockBytes + 1) * kBlockBytes) {
        touched.insert(at / kBlockBytes);
      }
    }
    std::vector<ReadPiece> dealt;
    std::multiset<std::uint64_t> read;
    for (const ReadRun& run : plan_runs(pieces, kData)) {
      EXPECT_LE(run.source.size(), kSlabBytes);
      for (std::uint64_t at = run.source.begin; at < run.source.end; at += kBlockBytes) {
        read.insert(at / kBlockBytes);
      }
      for (const ReadPiece& part : run.pieces) {
        EXPECT_LE(run.source.begin, part.source.begin);
        EXPECT_GE(run.source.end, part.source.end);
        EXPECT_EQ(part.source.size(), part.into.size());
        dealt.push_back(part);
      }
    }
    EXPECT_TRUE(std::ranges::equal(read, touched));
    EXPECT_EQ(copies_of(dealt), copies_of(pieces));
  }
}

}  // namespace
}  // namespace deepfreeze

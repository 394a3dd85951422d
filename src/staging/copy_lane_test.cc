#include "staging/copy_lane.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <thread>

namespace deepfreeze {
namespace {

struct Items {
  std::vector<std::byte> memory;
  std::vector<CaptureItem> all;
  std::vector<std::size_t> members;
};

// In file order, with holes, every third of no bytes; about half are members.
Items random_items(std::mt19937_64& random) {
  Items items{.memory = std::vector<std::byte>(2'000), .all = {}, .members = {}};
  std::uint64_t at = random() % 200;
  for (std::size_t i = 0; i < random() % 40; ++i) {
    const std::size_t bytes = random() % 3 == 0 ? 0 : random() % 2'000;
    items.all.push_back({.source = std::span(items.memory).first(bytes), .offset = at});
    if (random() % 2 == 0) items.members.push_back(i);
    at += bytes + (random() % 2 == 0 ? 0 : random() % 300);
  }
  return items;
}

struct Piece {
  std::size_t item;
  std::uint64_t offset;
  std::uint64_t bytes;
  bool operator==(const Piece&) const = default;
};

// The expected pieces, found byte by byte.
std::vector<Piece> expected_pieces(const Items& items, std::uint64_t block_bytes) {
  std::vector<Piece> pieces;
  for (const std::size_t member : items.members) {
    const CaptureItem& item = items.all[member];
    for (std::uint64_t at = item.offset; at < item.offset + item.source.size(); ++at) {
      if (at == item.offset || at % block_bytes == 0) pieces.push_back({member, at, 0});
      ++pieces.back().bytes;
    }
  }
  return pieces;
}

std::vector<Piece> pieces_of(const CopyLane& lane) {
  std::vector<Piece> pieces;
  for (std::uint64_t number = 0; number < lane.piece_count(); ++number) {
    const CapturePiece piece = lane.piece(number);
    pieces.push_back({piece.item, piece.offset, piece.bytes});
  }
  return pieces;
}

TEST(CopyLane, PiecesTileEachMemberOnceAndEndAtBlocks) {
  for (std::uint64_t seed = 1; seed <= 1'000; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed=" << seed);
    std::mt19937_64 random(seed);
    const Items items = random_items(random);
    const std::uint64_t block_bytes = 1 + random() % 500;
    const CopyLane lane(items.all, items.members, block_bytes);
    ASSERT_EQ(pieces_of(lane), expected_pieces(items, block_bytes));
    ASSERT_EQ(piece_count(items.all, items.members, block_bytes), lane.piece_count());
  }
}

TEST(CopyLane, OfItemsWithoutBytesHasNoPieces) {
  const std::vector<CaptureItem> items(3);
  CopyLane lane(items, {0, 1, 2}, 64);
  EXPECT_EQ(lane.piece_count(), 0U);
  EXPECT_FALSE(lane.claim(16));
}

TEST(CopyLane, ClaimsComeInOrderAndTheLastMayBeShort) {
  const std::vector<std::byte> memory(1'000);
  const std::vector<CaptureItem> items = {{.source = memory, .offset = 0}};
  CopyLane lane(items, {0}, 100);
  for (const auto& [begin, end] : {std::pair{0, 4}, {4, 8}, {8, 10}}) {
    const auto range = lane.claim(4);
    ASSERT_TRUE(range);
    EXPECT_EQ(range->begin, static_cast<std::uint64_t>(begin));
    EXPECT_EQ(range->end, static_cast<std::uint64_t>(end));
  }
  EXPECT_FALSE(lane.claim(4));
  EXPECT_FALSE(lane.claim(1));
}

TEST(CopyLane, ThreadsThatClaimAtOnceGetEachPieceOnce) {
  const std::vector<std::byte> memory(20'000);
  const std::vector<CaptureItem> items = {{.source = memory, .offset = 0}};
  CopyLane lane(items, {0}, 1);
  std::vector<std::vector<std::uint64_t>> claimed(4);
  {
    std::vector<std::jthread> threads;
    for (auto& mine : claimed) {
      threads.emplace_back([&lane, &mine, count = 1 + threads.size()] {
        while (const auto range = lane.claim(count)) {
          for (std::uint64_t at = range->begin; at < range->end; ++at) mine.push_back(at);
        }
      });
    }
  }
  std::vector<int> times(lane.piece_count());
  for (const auto& mine : claimed) {
    for (const std::uint64_t number : mine) ++times.at(number);
  }
  EXPECT_EQ(times, std::vector<int>(20'000, 1));
}

}  // namespace
}  // namespace deepfreeze

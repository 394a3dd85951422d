#include "plan/audit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <ranges>

#include "plan/layouts.h"
#include "support/sanitized.h"

namespace deepfreeze {
namespace {

constexpr GroupId kAll = 3;

// How often each byte of each tensor is looked at in saves [first, first + saves).
std::vector<std::vector<int>> looks(const SpecTable& table, const AuditPlan& plan,
                                    std::uint64_t first) {
  std::vector<std::vector<int>> seen;
  for (const TensorSpec& spec : table) seen.emplace_back(spec_bytes(spec).value());
  const Audit audit(table, plan);
  for (std::uint64_t save = first; save < first + plan.saves; ++save) {
    for (const AuditPiece& piece : audit.pieces(save)) {
      for (std::uint64_t i = 0; i < piece.bytes; ++i) ++seen[piece.tensor][piece.first_byte + i];
    }
  }
  return seen;
}

TEST(Audit, LooksAtEveryByteOnceWithinSoManySaves) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (int trial = 0; trial < 30; ++trial) {
    SpecTable table;
    AuditPlan plan{.saves = 1 + static_cast<std::uint32_t>(random() % 40), .groups = {}};
    for (int i = 0; i < 6; ++i) {
      table.push_back(whole("t" + std::to_string(i), {random() % 40'000}, DType::kU8));
      plan.groups.push_back(i % 3 == 0 ? kNoCopies : static_cast<GroupId>(i % 2));
    }
    const auto seen = looks(table, plan, random() % 1000);
    for (std::size_t i = 0; i < table.size(); ++i) {
      const int wanted = plan.groups[i] == kNoCopies ? 0 : 1;
      EXPECT_TRUE(std::ranges::all_of(seen[i], [&](int times) { return times == wanted; })) << i;
    }
  }
}

TEST(Audit, SavesLookAtAboutAsMuchEach) {
  const SpecTable table = {whole("w", {9'000'003}, DType::kU8), whole("b", {77}, DType::kU8)};
  const Audit audit(table, {.saves = 7, .groups = {kAll, kAll}});
  constexpr std::uint64_t kOfSmall = 256 * 1024;  // the length that a small tensor counts as
  EXPECT_EQ(audit.bytes_max(), (9'000'003 + kOfSmall + 6) / 7);
  for (std::uint64_t save = 0; save < 14; ++save) {
    std::uint64_t bytes = 0;
    for (const AuditPiece& piece : audit.pieces(save)) bytes += piece.bytes;
    EXPECT_LE(bytes, audit.bytes_max());
    EXPECT_GE(bytes + kOfSmall, audit.bytes_max());
  }
}

// Ranks whose tables have another order and further tensors look at the same bytes.
TEST(Audit, IsTheSameOnAllRanksOfAGroup) {
  const SpecTable one = {whole("b", {9'000}), whole("a", {7'000}), whole("@rank0.g", {11})};
  const SpecTable other = {whole("x", {800'000}), whole("a", {7'000}), whole("b", {9'000})};
  const Audit first(one, {.saves = 5, .groups = {kAll, kAll, kNoCopies}});
  const Audit second(other, {.saves = 5, .groups = {1, kAll, kAll}});
  using Seen = std::map<std::pair<std::string, std::uint64_t>, std::uint64_t>;
  for (std::uint64_t save = 0; save < 5; ++save) {
    Seen here, there;
    for (const AuditPiece& piece : first.pieces(save)) {
      here[{one[piece.tensor].key, piece.first_byte}] = piece.bytes;
    }
    for (const AuditPiece& piece : second.pieces(save)) {
      if (piece.tensor > 0) there[{other[piece.tensor].key, piece.first_byte}] = piece.bytes;
    }
    EXPECT_EQ(here, there);
    EXPECT_FALSE(here.empty());
  }
}

// It is memory that is taken for every save.
TEST(Audit, SmallTensorsTakeNoMoreThanTheyAre) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (int trial = 0; trial < 200; ++trial) {
    SpecTable table;
    for (std::uint64_t i = 0, count = 1 + random() % 60; i < count; ++i) {
      const std::uint64_t length = random() % (random() % 3 == 0 ? 2'000'000 : 3'000);
      table.push_back(whole(std::to_string(i), {length}, DType::kU8));
    }
    const auto saves = static_cast<std::uint32_t>(1 + random() % 20);
    const Audit audit(table, {.saves = saves, .groups = std::vector<GroupId>(table.size(), kAll)});
    std::uint64_t most = 0;
    std::uint64_t all = 0;
    for (std::uint64_t save = 0; save < saves; ++save) {
      std::uint64_t bytes = 0;
      for (const AuditPiece& piece : audit.pieces(save)) bytes += piece.bytes;
      most = std::max(most, bytes);
      all += bytes;
    }
    EXPECT_GE(audit.bytes_max(), most);
    EXPECT_LE(audit.bytes_max(), all);
    if (saves == 1) {
      EXPECT_EQ(audit.bytes_max(), all);
    }
  }
}

TEST(Audit, PiecesEndAtMultiplesOfTheirSize) {
  const SpecTable table = {whole("w", {3 * kAuditPieceBytes + 5}, DType::kU8)};
  const Audit audit(table, {.saves = 1, .groups = {kAll}});
  EXPECT_EQ(audit.pieces(9), (std::vector<AuditPiece>{{0, 0, kAuditPieceBytes},
                                                      {0, kAuditPieceBytes, kAuditPieceBytes},
                                                      {0, 2 * kAuditPieceBytes, kAuditPieceBytes},
                                                      {0, 3 * kAuditPieceBytes, 5}}));
}

// All is looked at, and a header has room for the pieces of each save.
void expect_room(const SpecTable& table, std::uint32_t groups, std::uint64_t saves_max) {
  const AuditPlan plan{
      .saves = 3, .groups_of_rank_max = groups, .groups = std::vector<GroupId>(table.size(), kAll)};
  const Audit audit(table, plan);
  std::vector<std::uint64_t> seen(table.size());
  const auto is_seen = [&] {
    return std::ranges::all_of(std::views::iota(std::size_t{0}, table.size()),
                               [&](std::size_t i) { return seen[i] == spec_bytes(table[i]); });
  };
  std::uint64_t saves = 0;
  for (; saves < saves_max && !is_seen(); ++saves) {
    std::uint64_t text_bytes = 0;
    for (const AuditPiece& piece : audit.pieces(saves)) {
      seen[piece.tensor] += piece.bytes;
      text_bytes += audit_text_bytes(table[piece.tensor]);
    }
    EXPECT_LE(groups * text_bytes, kAuditTextBytesMax);
  }
  EXPECT_TRUE(is_seen()) << "after " << saves << " saves";
}

TEST(Audit, TakesMoreSavesWhereAHeaderHasNoRoomForSoFew) {
  SpecTable small;
  for (int i = 0; i < 8'000; ++i) {
    small.push_back(whole(std::string(50, 'k') + std::to_string(i), {10}, DType::kU8));
  }
  expect_room(small, 2, 10);
  SpecTable mixed = {whole("large", {5'000'000'000}, DType::kU8)};
  mixed.insert(mixed.end(), small.begin(), small.end());
  expect_room(mixed, 2, 30);
  const std::uint64_t ends = kAuditPieceBytes + 1;  // a piece, and one of a byte
  SpecTable ragged;
  for (int i = 0; i < 3'000; ++i) {
    ragged.push_back(whole("\"" + std::to_string(i), {ends}, DType::kU8));
  }
  expect_room(ragged, 1, 100);
}

// Whatever the lengths, and however few pieces there is room for.
TEST(Audit, NoTurnHasMorePiecesThanThereIsRoomFor) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  constexpr std::uint64_t kLengths[] = {256 * 1024, 256 * 1024 + 1, kAuditPieceBytes - 1,
                                        kAuditPieceBytes + 1, 3 * kAuditPieceBytes + 2};
  for (int trial = 0; trial < (kSanitized ? 200 : 1'000); ++trial) {
    SpecTable table;
    for (std::uint64_t i = 0, kinds = 1 + random() % 5; i < 200; ++i) {
      const std::uint64_t length = kLengths[random() % kinds];
      table.push_back(whole(std::to_string(100 + i), {length}, DType::kU8));
    }
    const std::uint64_t room = 3 + random() % 10;
    const std::uint64_t groups = kAuditTextBytesMax / (room * audit_text_bytes(table[0]));
    const Audit audit(table, {.saves = 1,
                              .groups_of_rank_max = static_cast<std::uint32_t>(groups),
                              .groups = std::vector<GroupId>(table.size(), kAll)});
    for (std::uint64_t save = 0; save < 40; ++save) ASSERT_LE(audit.pieces(save).size(), room);
  }
}

// If not even two neighbours have room together, there is nothing left to divide.
TEST(Audit, AnyPlanHasAnEnd) {
  const SpecTable table = {whole(std::string(4'000, 'a'), {1'000}, DType::kU8),
                           whole(std::string(4'000, '\n'), {3'000'000}, DType::kU8)};
  for (const std::uint32_t groups : {1U, 100U, 1'000'000U}) {
    for (const std::uint32_t saves : {1U, 100U, std::numeric_limits<std::uint32_t>::max()}) {
      const Audit audit(table,
                        {.saves = saves, .groups_of_rank_max = groups, .groups = {kAll, kAll}});
      EXPECT_LE(audit.pieces(saves / 2).size(), 4U);
      EXPECT_GT(audit.bytes_max(), 0U);
    }
  }
}

TEST(Audit, NothingIsLookedAtWhereItIsNotWanted) {
  const SpecTable table = {whole("w", {8})};
  EXPECT_TRUE(Audit(table, {.saves = 0, .groups = {kAll}}).pieces(1).empty());
  EXPECT_TRUE(Audit(table, {.saves = 1, .groups = {kNoCopies}}).pieces(1).empty());
  EXPECT_TRUE(Audit().pieces(1).empty());
  EXPECT_EQ(Audit().bytes_max(), 0U);
}

}  // namespace
}  // namespace deepfreeze

#include "plan/audit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "plan/layouts.h"

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
  const SpecTable table = {whole("w", {1'000'003}, DType::kU8), whole("b", {77}, DType::kU8)};
  const Audit audit(table, {.saves = 7, .groups = {kAll, kAll}});
  const std::uint64_t length = 1'000'003 + 65'536;  // a small tensor counts as a block
  EXPECT_EQ(audit.bytes_max(), (length + 6) / 7);
  for (std::uint64_t save = 0; save < 14; ++save) {
    std::uint64_t bytes = 0;
    for (const AuditPiece& piece : audit.pieces(save)) bytes += piece.bytes;
    EXPECT_LE(bytes, audit.bytes_max());
    EXPECT_GE(bytes + 65'536, audit.bytes_max());
  }
}

// Ranks whose tables are in another order, and hold what others have not, look at the same bytes.
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

TEST(Audit, PiecesEndAtMultiplesOfTheirSize) {
  const SpecTable table = {whole("w", {3 * kAuditPieceBytes + 5}, DType::kU8)};
  const Audit audit(table, {.saves = 1, .groups = {kAll}});
  EXPECT_EQ(audit.pieces(9), (std::vector<AuditPiece>{{0, 0, kAuditPieceBytes},
                                                      {0, kAuditPieceBytes, kAuditPieceBytes},
                                                      {0, 2 * kAuditPieceBytes, kAuditPieceBytes},
                                                      {0, 3 * kAuditPieceBytes, 5}}));
}

TEST(Audit, TakesMoreSavesWhereAHeaderHasNoRoomForSoFew) {
  SpecTable table;
  for (int i = 0; i < 8'000; ++i) {
    table.push_back(whole(std::string(50, 'k') + std::to_string(i), {10}, DType::kU8));
  }
  table.push_back(whole("w", {5'000'000'000}, DType::kU8));
  const AuditPlan plan{
      .saves = 3, .groups_of_rank_max = 2, .groups = std::vector<GroupId>(table.size(), kAll)};
  const Audit audit(table, plan);
  std::map<std::size_t, std::uint64_t> seen;
  std::uint64_t saves = 0;
  for (; saves < 10'000 && seen.size() < table.size(); ++saves) {
    const auto pieces = audit.pieces(saves);
    std::uint64_t key_bytes = 0;
    for (const AuditPiece& piece : pieces) {
      seen[piece.tensor] += piece.bytes;
      key_bytes += table[piece.tensor].key.size();
    }
    EXPECT_LE(2 * pieces.size(), kAuditPiecesMax);
    EXPECT_LE(2 * key_bytes, kAuditKeyBytesMax);
  }
  EXPECT_EQ(seen.size(), table.size());
  EXPECT_EQ(seen[0], 10U);
  EXPECT_LT(saves, 100U);
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

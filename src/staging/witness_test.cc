#include "staging/witness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <random>
#include <set>

#include "staging/copy_lane.h"

namespace deepfreeze::witness_test {
namespace {

constexpr std::uint64_t kBlock = 1'024;

std::vector<std::byte> random_bytes(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

Witness witness_of(const CaptureItem& item, WitnessSettings settings) {
  Witness witness(1, settings);
  witness.record(std::span(&item, 1), std::array{std::size_t{0}});
  return witness;
}

// One item at its offset, recorded, and copies of it to compare.
class Recorded {
 public:
  Recorded(std::uint64_t offset, std::size_t bytes, WitnessSettings settings)
      : memory_(random_bytes(bytes, offset)),
        item_({.source = memory_, .offset = offset, .guard = 1}),
        witness_(witness_of(item_, settings)) {}

  void change(std::size_t at) { memory_.at(at) ^= std::byte{0x10}; }
  void change_all() {
    for (std::byte& byte : memory_) byte = ~byte;
  }
  // Whether all pieces of the item, cut at blocks, match.
  [[nodiscard]] bool matches(std::uint64_t block_bytes = kBlock) const {
    const CopyLane lane(std::span(&item_, 1), {0}, block_bytes);
    for (std::uint64_t number = 0; number < lane.piece_count(); ++number) {
      const CapturePiece piece = lane.piece(number);
      const auto copied = item_.source.subspan(piece.offset - item_.offset, piece.bytes);
      if (!witness_.matches(item_, piece, copied)) return false;
    }
    return true;
  }
  [[nodiscard]] bool unchanged() const { return witness_.unchanged(0, item_); }
  [[nodiscard]] const CaptureItem& item() const { return item_; }

 private:
  std::vector<std::byte> memory_;
  CaptureItem item_;
  Witness witness_;
};

// In the item; those whose change is seen.
std::set<std::size_t> bytes_seen(Recorded& recorded) {
  std::set<std::size_t> seen;
  for (std::size_t at = 0; at < recorded.item().source.size(); ++at) {
    recorded.change(at);
    if (!recorded.matches()) seen.insert(at);
    EXPECT_EQ(recorded.unchanged(), recorded.matches()) << "byte " << at;
    recorded.change(at);
  }
  return seen;
}

// The lines of the data section that hold these bytes.
std::set<std::uint64_t> lines_of(const std::set<std::size_t>& bytes, std::uint64_t offset) {
  std::set<std::uint64_t> lines;
  for (const std::size_t at : bytes) lines.insert((offset + at) / kLineBytes);
  return lines;
}

TEST(Witness, IsSilentWhereNothingChanged) {
  for (std::uint64_t seed = 1; seed <= 2'000; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed=" << seed);
    std::mt19937_64 random(seed);
    const Recorded recorded(random() % 5'000, random() % (seed % 2 == 0 ? 200 : 9'000),
                            {.seed = seed, .block_bytes = kBlock, .every_byte = seed % 5 == 0});
    ASSERT_TRUE(recorded.matches());
    ASSERT_TRUE(recorded.unchanged());
  }
}

TEST(Witness, OfAnItemThatWasNotRecordedMatchesAnything) {
  const Witness witness(1, {.seed = 1, .block_bytes = kBlock});
  const std::vector<std::byte> memory(500);
  const CaptureItem item = {.source = memory, .offset = 0};
  EXPECT_TRUE(witness.matches(item, {.item = 0, .offset = 0, .bytes = 500}, memory));
  EXPECT_TRUE(witness.unchanged(0, item));
}

TEST(Witness, SeesEveryByteOfItsLinesOneInEachSixteenthOfTheItem) {
  for (const std::uint64_t offset : {0U, 64U, 1'000U, 1'023U, 77U}) {
    for (const std::size_t bytes : {127U, 128U, 500U, 1'024U, 1'100U, 5'000U}) {
      SCOPED_TRACE(testing::Message() << bytes << " bytes at " << offset);
      Recorded recorded(offset, bytes, {.seed = offset + bytes, .block_bytes = kBlock});
      const auto seen = bytes_seen(recorded);
      const auto lines = lines_of(seen, offset);
      const std::uint64_t first = (offset + kLineBytes - 1) / kLineBytes;
      const std::uint64_t count = (offset + bytes) / kLineBytes - first;
      ASSERT_EQ(lines.size(), std::min(kWitnessLines, count));
      EXPECT_EQ(seen.size(), lines.size() * kLineBytes);
      std::uint64_t k = 0;
      for (const std::uint64_t line : lines) {
        EXPECT_GE(line, first + count * k / lines.size());
        EXPECT_LT(line, first + count * (k + 1) / lines.size());
        ++k;
      }
    }
  }
}

// Step counters, gains, the bias of a last layer.
TEST(Witness, SeesEveryByteOfAnItemTooSmallForALine) {
  for (std::size_t bytes = 1; bytes < 2 * kLineBytes; ++bytes) {
    for (const std::uint64_t offset : {0U, 1U, 63U, 960U, 1'000U, 1'023U}) {
      if ((offset + bytes) / kLineBytes > (offset + kLineBytes - 1) / kLineBytes) continue;
      SCOPED_TRACE(testing::Message() << bytes << " bytes at " << offset);
      Recorded recorded(offset, bytes, {.seed = bytes, .block_bytes = kBlock});
      ASSERT_EQ(bytes_seen(recorded).size(), bytes);
    }
  }
}

TEST(Witness, SeesAChangeOfAWholeItemOfAnySize) {
  for (std::uint64_t seed = 1; seed <= 2'000; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed=" << seed);
    std::mt19937_64 random(seed);
    Recorded recorded(random() % 5'000, 1 + random() % (seed % 2 == 0 ? 200 : 9'000),
                      {.seed = seed, .block_bytes = kBlock});
    recorded.change_all();
    ASSERT_FALSE(recorded.matches());
    ASSERT_FALSE(recorded.unchanged());
  }
}

TEST(Witness, OfEveryByteSeesEachOne) {
  for (const std::uint64_t offset : {0U, 1'000U}) {
    for (const std::size_t bytes : {1U, 63U, 128U, 3'000U}) {
      SCOPED_TRACE(testing::Message() << bytes << " bytes at " << offset);
      Recorded recorded(offset, bytes, {.seed = 3, .block_bytes = kBlock, .every_byte = true});
      ASSERT_EQ(bytes_seen(recorded).size(), bytes);
    }
  }
}

TEST(Witness, AnotherSeedChoosesOtherLines) {
  std::set<std::set<std::uint64_t>> choices;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Recorded recorded(0, 64 * 1'000, {.seed = seed, .block_bytes = kBlock});
    std::set<std::size_t> seen;
    for (std::size_t at = 0; at < 64'000; at += kLineBytes) {
      recorded.change(at);
      if (!recorded.unchanged()) seen.insert(at);
      recorded.change(at);
    }
    choices.insert(lines_of(seen, 0));
  }
  EXPECT_EQ(choices.size(), 20U);
}

TEST(Witness, OfItemsOfOneSizeChoosesUnrelatedLines) {
  std::vector<std::byte> memory(64 * 1'000);
  std::set<std::uint64_t> first_lines;
  Witness witness(20, {.seed = 5, .block_bytes = kBlock});
  const CaptureItem item = {.source = memory, .offset = 0, .guard = 1};
  std::vector<std::size_t> all(20);
  std::iota(all.begin(), all.end(), std::size_t{0});
  witness.record(std::vector(all.size(), item), all);
  for (std::size_t index = 0; index < 20; ++index) {
    for (std::size_t at = 0; at < memory.size(); at += kLineBytes) {
      memory[at] = std::byte{1};
      const bool seen = !witness.unchanged(index, item);
      memory[at] = std::byte{0};
      if (seen && first_lines.insert(at).second) break;
    }
  }
  EXPECT_GT(first_lines.size(), 10U);
}

TEST(Witness, PieceByPieceSeesWhatTheWholeItemShows) {
  for (std::uint64_t seed = 1; seed <= 3'000; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed=" << seed);
    std::mt19937_64 random(seed);
    const std::size_t bytes = 1 + random() % 6'000;
    const std::uint64_t block_bytes = kLineBytes << random() % 6;
    Recorded recorded(random() % 3'000, bytes, {.seed = seed, .block_bytes = block_bytes});
    recorded.change(random() % bytes);
    ASSERT_EQ(recorded.matches(block_bytes), recorded.unchanged());
  }
}

}  // namespace
}  // namespace deepfreeze::witness_test

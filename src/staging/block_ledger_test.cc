#include "staging/block_ledger.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <random>
#include <thread>

#include "codec/crc32c.h"

namespace deepfreeze::block_ledger_test {
namespace {

constexpr std::uint64_t kBlock = 64;
constexpr std::uint64_t kSlab = 256;

class Ledger {
 public:
  explicit Ledger(std::size_t image_bytes) : memory_(image_bytes) {
    for (std::size_t i = 0; i < image_bytes; ++i) memory_[i] = static_cast<std::byte>(i * 7 + 1);
  }

  BlockLedger& operator*() { return ledger_; }
  BlockLedger* operator->() { return &ledger_; }
  [[nodiscard]] const std::vector<std::size_t>& announced() const { return announced_; }
  [[nodiscard]] bool was_complete_before() const { return was_complete_before_; }
  [[nodiscard]] std::uint64_t blocks() const { return ceil_div(memory_.size(), kBlock); }
  [[nodiscard]] std::uint64_t block_bytes(std::uint64_t block) const {
    return std::min<std::uint64_t>(kBlock, memory_.size() - block * kBlock);
  }
  [[nodiscard]] std::uint32_t crc(std::uint64_t block) const {
    return crc32c(std::span(memory_).subspan(block * kBlock, block_bytes(block)));
  }

 private:
  std::vector<std::byte> memory_;
  std::mutex mutex_;
  std::vector<std::size_t> announced_;  // guarded by mutex_
  bool was_complete_before_ = false;    // an announcement; guarded by mutex_
  BlockLedger ledger_{Image(memory_, memory_.size(), kSlab), kBlock, [this](std::size_t slab) {
                        const std::lock_guard lock(mutex_);
                        announced_.push_back(slab);
                        was_complete_before_ = was_complete_before_ || ledger_.complete();
                      }};
};

TEST(BlockLedger, OfAnEmptyImageIsComplete) {
  Ledger ledger(0);
  EXPECT_TRUE(ledger->complete());
  EXPECT_TRUE(ledger->block_crcs().empty());
}

TEST(BlockLedger, ABlockIsCheckedWhenItsLastByteArrivedAndNotBefore) {
  Ledger ledger(kSlab);
  EXPECT_FALSE(ledger->arrived(2, kBlock - 1));
  EXPECT_EQ(ledger->block_crcs()[2], 0U);
  EXPECT_FALSE(ledger->arrived(2, 1));
  EXPECT_EQ(ledger->block_crcs()[2], ledger.crc(2));
}

TEST(BlockLedger, AChecksumThatTheCopyMadeIsNotMadeAgain) {
  Ledger ledger(kSlab);
  constexpr std::uint32_t kGiven = 7;
  EXPECT_FALSE(ledger->arrived(1, kBlock, kGiven));
  EXPECT_EQ(ledger->block_crcs()[1], kGiven);
}

TEST(BlockLedger, ASlabIsAnnouncedWithItsLastBlock) {
  Ledger ledger(2 * kSlab);
  for (const std::uint64_t block : {6U, 4U, 7U}) EXPECT_FALSE(ledger->arrived(block, kBlock));
  EXPECT_TRUE(ledger.announced().empty());
  EXPECT_FALSE(ledger->arrived(5, kBlock));
  EXPECT_EQ(ledger.announced(), std::vector<std::size_t>{1});
  EXPECT_FALSE(ledger->complete());
}

TEST(BlockLedger, TheLastBlockAndTheLastSlabMayBeShort) {
  Ledger ledger(kSlab + kBlock + 1);
  for (std::uint64_t block = 0; block + 1 < ledger.blocks(); ++block) {
    EXPECT_FALSE(ledger->arrived(block, kBlock));
  }
  EXPECT_EQ(ledger.announced(), std::vector<std::size_t>{0});
  EXPECT_TRUE(ledger->arrived(ledger.blocks() - 1, 1));
  EXPECT_EQ(ledger.announced(), (std::vector<std::size_t>{0, 1}));
  EXPECT_EQ(ledger->block_crcs().back(), ledger.crc(ledger.blocks() - 1));
  EXPECT_TRUE(ledger->complete());
  EXPECT_FALSE(ledger.was_complete_before());
}

// Sections of 70 bytes (blocks 0 and 1 of slab 0) and of 256 (slab 1, blocks 4 to 7).
TEST(BlockLedger, BlocksThatNoFileHasAreNoLack) {
  std::array<std::byte, 2 * kSlab> memory;
  memory.fill(std::byte{5});
  const std::array<std::uint64_t, 2> sections{70, kSlab};
  std::vector<std::size_t> announced;
  BlockLedger ledger(Image(memory, lay_sections(sections, kSlab), kSlab), kBlock,
                     [&announced](std::size_t slab) { announced.push_back(slab); });
  EXPECT_FALSE(ledger.arrived(0, kBlock));
  EXPECT_FALSE(ledger.arrived(1, 70 - kBlock));
  EXPECT_EQ(announced, std::vector<std::size_t>{0});
  for (const std::uint64_t block : {4U, 5U, 6U}) EXPECT_FALSE(ledger.arrived(block, kBlock));
  EXPECT_TRUE(ledger.arrived(7, kBlock));
  EXPECT_EQ(announced, (std::vector<std::size_t>{0, 1}));
  EXPECT_EQ(ledger.block_crcs()[1], crc32c(std::span(memory).first(70 - kBlock)));
  EXPECT_EQ(ledger.block_crcs()[2], 0U);
}

// Three threads bring random parts: one call completes the image, each slab comes once.
void arrive_from_threads(Ledger& ledger, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> arrivals;  // block, bytes
  for (std::uint64_t block = 0; block < ledger.blocks(); ++block) {
    const std::uint64_t bytes = ledger.block_bytes(block);
    const std::uint64_t first = random() % bytes;
    if (first > 0) arrivals.emplace_back(block, first);
    arrivals.emplace_back(block, bytes - first);
  }
  std::ranges::shuffle(arrivals, random);
  std::atomic<std::size_t> next{0};
  std::atomic<int> times_completed{0};
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&] {
        for (std::size_t at = next++; at < arrivals.size(); at = next++) {
          if (ledger->arrived(arrivals[at].first, arrivals[at].second)) ++times_completed;
        }
      });
    }
  }
  EXPECT_EQ(times_completed, 1);
}

TEST(BlockLedger, ArrivalsInAnyOrderFromAnyThreadsCompleteItOnce) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed=" << seed);
    Ledger ledger(1 + seed * 97 % 5'000);
    arrive_from_threads(ledger, seed);
    EXPECT_TRUE(ledger->complete());
    std::vector<std::size_t> announced = ledger.announced();
    std::ranges::sort(announced);
    EXPECT_EQ(announced.size(), ceil_div(ledger.blocks(), kSlab / kBlock));
    EXPECT_EQ(std::ranges::adjacent_find(announced), announced.end());
    for (std::uint64_t block = 0; block < ledger.blocks(); ++block) {
      EXPECT_EQ(ledger->block_crcs()[block], ledger.crc(block));
    }
  }
}

}  // namespace
}  // namespace deepfreeze::block_ledger_test

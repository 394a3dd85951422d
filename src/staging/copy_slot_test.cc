#include "staging/copy_slot.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <thread>

#include "arena/held_memory.h"
#include "base/thread_sanitizer.h"
#include "codec/crc32c.h"

namespace deepfreeze {
namespace {

constexpr std::size_t kBytes = 2 * HeldMemory::kPage;
constexpr std::size_t kItem = 7;
constexpr std::byte kOld{1};
constexpr std::byte kNew{2};

// A copier that is stopped between the first and the second page.
class HeldCopier {
 public:
  // `earlier`: the place holds a copy of such bytes already.
  explicit HeldCopier(std::optional<std::byte> earlier = {}) {
    std::ranges::fill(source_.bytes(), kOld);
    if (earlier) std::ranges::fill(into_, *earlier);
    source_.arm(1);
    const BlockCrc old_crc = earlier ? BlockCrc(1) : std::nullopt;
    thread_ = std::jthread([this, old_crc] {
      copied_ = slot_.copy(source_.bytes(), {.bytes = into_, .old_block_crc = old_crc}, kItem);
    });
    source_.wait_until_held(1);
  }

  CopySlot& slot() { return slot_; }
  void change_source() { std::ranges::fill(source_.bytes(), kNew); }
  // Lets it go on; true if it has to count the source as read.
  bool end() {
    HeldMemory::let_go();
    thread_.join();
    return !copied_.was_taken_over;
  }
  [[nodiscard]] bool has_changed() const { return copied_.piece.has_changed; }
  [[nodiscard]] const std::vector<std::byte>& into() const { return into_; }

 private:
  HeldMemory source_{2};
  std::vector<std::byte> into_ = std::vector<std::byte>(kBytes);
  CopySlot slot_{kBytes};
  CopySlot::Copied copied_;
  std::jthread thread_;
};

TEST(CopySlot, CopiesPieceAfterPieceWhereNobodyTakesOver) {
  CopySlot slot(100);
  for (std::size_t bytes : {std::size_t{100}, std::size_t{1}, std::size_t{64}}) {
    const std::vector<std::byte> source(bytes, kOld);
    std::vector<std::byte> into(bytes);
    EXPECT_FALSE(slot.copy(source, {.bytes = into}, kItem).was_taken_over);
    EXPECT_EQ(into, source);
  }
}

TEST(CopySlot, KnowsTheChecksumOfAWholeBlockThatNobodyTookOver) {
  CopySlot slot(4096);
  const std::vector<std::byte> source(4096, kOld);
  std::vector<std::byte> into(source.size());
  EXPECT_EQ(slot.copy(source, {.bytes = into}, kItem).piece.crc, std::nullopt);
#if !DF_THREAD_SANITIZER
  EXPECT_EQ(slot.copy(source, {.bytes = into, .is_block = true}, kItem).piece.crc, crc32c(source));
#endif
}

TEST(CopySlot, HasNothingToTakeOverBeforeACopyAndAfterIt) {
  CopySlot slot(100);
  EXPECT_EQ(slot.take_over(), std::nullopt);
  std::vector<std::byte> into(100);
  EXPECT_FALSE(slot.copy(std::vector<std::byte>(100), {.bytes = into}, kItem).was_taken_over);
  EXPECT_EQ(slot.take_over(), std::nullopt);
}

TEST(CopySlot, AHeldCopierThatNobodyTookOverEndsItsCopy) {
  HeldCopier copier;
  EXPECT_TRUE(copier.end());
  EXPECT_EQ(copier.into(), std::vector<std::byte>(kBytes, kOld));
}

TEST(CopySlot, ACopierThatWasTakenOverEndsWithTheOldBytesWhateverItReadItself) {
  HeldCopier copier;
  EXPECT_EQ(copier.slot().take_over(), kItem);
  copier.change_source();
  EXPECT_FALSE(copier.end());
  EXPECT_EQ(copier.into(), std::vector<std::byte>(kBytes, kOld));
}

TEST(CopySlot, APieceThatEqualsItsEarlierCopyIsUnchangedAlsoIfItIsTakenOver) {
  for (const bool is_taken_over : {false, true}) {
    HeldCopier copier(kOld);
    if (is_taken_over) {
      EXPECT_EQ(copier.slot().take_over(), kItem);
    }
    if (is_taken_over) copier.change_source();  // in a part that has been compared, or has not
    EXPECT_EQ(copier.end(), !is_taken_over);
    EXPECT_EQ(copier.into(), std::vector<std::byte>(kBytes, kOld));
    if (!is_taken_over) {
      EXPECT_FALSE(copier.has_changed());
    }
  }
}

TEST(CopySlot, APieceThatDiffersFromItsEarlierCopyHasChangedAlsoIfItIsTakenOver) {
  for (const bool is_taken_over : {false, true}) {
    HeldCopier copier(kNew);
    if (is_taken_over) {
      EXPECT_EQ(copier.slot().take_over(), kItem);
    }
    EXPECT_EQ(copier.end(), !is_taken_over);
    EXPECT_EQ(copier.into(), std::vector<std::byte>(kBytes, kOld));
    EXPECT_TRUE(copier.has_changed());
  }
}

TEST(CopySlot, OneOfTwoWaitersTakesOver) {
  HeldCopier copier;
  EXPECT_EQ(copier.slot().take_over(), kItem);
  EXPECT_EQ(copier.slot().take_over(), std::nullopt);
  copier.change_source();
  EXPECT_FALSE(copier.end());
  EXPECT_EQ(copier.slot().take_over(), std::nullopt);
  EXPECT_EQ(copier.into(), std::vector<std::byte>(kBytes, kOld));
}

TEST(CopySlot, CopiesAsBeforeAfterATakeOver) {
  HeldCopier copier;
  EXPECT_EQ(copier.slot().take_over(), kItem);
  EXPECT_FALSE(copier.end());
  const std::vector<std::byte> source(kBytes, kNew);
  std::vector<std::byte> into(kBytes);
  EXPECT_FALSE(copier.slot().copy(source, {.bytes = into}, kItem + 1).was_taken_over);
  EXPECT_EQ(into, source);
}

// Both sides at full speed: a piece is counted by its copier or by one waiter, never by both,
// and holds the bytes of its own turn although each source changes once it is counted.
TEST(CopySlot, EachPieceIsCountedOnceHoweverCopierAndWaitersMeet) {
  constexpr int kPieces = 20'000;
  constexpr std::size_t kPieceBytes = 512;
  CopySlot slot(kPieceBytes);
  std::vector<std::byte> source(kPieceBytes);
  std::atomic<int> turn{0};   // of the piece that may be copied
  std::atomic<int> taken{0};  // pieces counted by waiters
  std::atomic<bool> over{false};
  const auto wait_and_change = [&] {
    while (!over) {
      const auto item = slot.take_over();
      if (!item) continue;
      ++taken;
      std::ranges::fill(source, static_cast<std::byte>(*item + 1));
      turn = static_cast<int>(*item) + 1;
    }
  };
  const std::jthread one(wait_and_change);
  const std::jthread other(wait_and_change);
  int kept = 0;
  for (int piece = 0; piece < kPieces; ++piece) {
    std::vector<std::byte> into(kPieceBytes);
    const PiecePlace place = {.bytes = into, .is_block = true};
    if (!slot.copy(source, place, static_cast<std::size_t>(piece)).was_taken_over) {
      ++kept;
      std::ranges::fill(source, static_cast<std::byte>(piece + 1));
      turn = piece + 1;
    }
    while (turn <= piece) std::this_thread::yield();
    ASSERT_EQ(into, std::vector<std::byte>(kPieceBytes, static_cast<std::byte>(piece)));
  }
  over = true;
  EXPECT_EQ(kept + taken, kPieces);
  RecordProperty("taken_over", taken);
}

}  // namespace
}  // namespace deepfreeze

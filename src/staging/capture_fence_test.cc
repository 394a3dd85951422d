// Groups, their release, their fences, and the witness's reaction to a missing one.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <thread>

#include "arena/held_memory.h"
#include "staging/background_copier.h"
#include "staging/capture_fixture.h"
#include "staging/copier_pool.h"

namespace deepfreeze::capture_fence_test {
namespace {

constexpr std::uint64_t kBlock = 64;
constexpr std::uint64_t kSlab = 256;
constexpr std::uint32_t kGuards = 4;
constexpr TilingOptions kGuarded = {
    .image_bytes = 10'000, .item_bytes_max = 300, .guards = kGuards};

std::vector<std::uint32_t> shuffled_guards(std::mt19937_64& random) {
  std::vector<std::uint32_t> guards(kGuards + 1);
  for (std::uint32_t guard = 0; guard <= kGuards; ++guard) guards[guard] = guard;
  std::ranges::shuffle(guards, random);
  return guards;
}

TEST(CaptureFence, NothingIsCopiedBeforeItsGroupIsReleased) {
  Capture capture(1, kGuarded, kBlock, kSlab);
  CaptureSession session(capture.spec());
  EXPECT_EQ(session.group_count(), kGuards + 1);
  session.help();
  session.help(2);
  EXPECT_EQ(capture.image(), std::vector<std::byte>(capture.image().size()));
  for (std::uint32_t guard = 0; guard <= kGuards; ++guard) {
    EXPECT_GT(session.pieces_unread(guard), 0U);
  }
}

TEST(CaptureFence, OfAGroupThatIsNotReleasedOrDoesNotExistReturnsAtOnce) {
  Capture capture(2, kGuarded, kBlock, kSlab);
  CaptureSession session(capture.spec());
  session.fence_all();
  session.fence(1'000);
  session.release(1'000);
  session.help(1'000);
  EXPECT_EQ(session.pieces_unread(1'000), 0U);
  EXPECT_EQ(capture.image(), std::vector<std::byte>(capture.image().size()));
}

TEST(CaptureFence, CopiesItsOwnGroupAndLeavesTheOthers) {
  Capture capture(3, kGuarded, kBlock, kSlab);
  CaptureSession session = capture.session();
  session.fence(2);
  EXPECT_EQ(session.pieces_unread(2), 0U);
  for (const std::uint32_t other : {0U, 1U, 3U, 4U}) EXPECT_GT(session.pieces_unread(other), 0U);
  EXPECT_FALSE(session.done());
  session.fence_all();
  expect_complete(capture, session);
}

TEST(CaptureFence, HelpForOneGroupLeavesTheOthers) {
  Capture capture(4, kGuarded, kBlock, kSlab);
  CaptureSession session = capture.session();
  session.help(3);
  EXPECT_EQ(session.pieces_unread(3), 0U);
  EXPECT_GT(session.pieces_unread(1), 0U);
}

TEST(CaptureFence, SourcesMayChangeAsSoonAsTheirFenceReturns) {
  CopierPool pool(2);
  BackgroundCopier background;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed=" << seed);
    std::mt19937_64 random(seed);
    TilingOptions options = kGuarded;
    options.shuffled = seed % 2 == 0;
    Capture capture(seed, options, kBlock, kSlab);
    CaptureSession session = capture.session();
    background.serve(session);
    for (const std::uint32_t guard : shuffled_guards(random)) {
      if (random() % 2 == 0) pool.run(session, guard);
      session.fence(guard);
      capture.change_guarded(guard);
    }
    session.wait();
    expect_complete(capture, session);
  }
}

TEST(CaptureFence, GroupsThatAreBoundAndReleasedOneByOneAreCopiedOneByOne) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed=" << seed);
    std::mt19937_64 random(seed);
    Capture capture(seed, kGuarded, kBlock, kSlab);
    CaptureSpec spec = capture.spec();
    for (CaptureItem& item : spec.items) {
      item.source = {static_cast<const std::byte*>(nullptr), item.source.size()};
    }
    CaptureSession session(std::move(spec));
    for (const std::uint32_t guard : shuffled_guards(random)) {
      for (std::size_t i = 0; i < capture.items().size(); ++i) {
        if (capture.items()[i].guard == guard) session.bind(i, capture.items()[i].source.data());
      }
      session.release(guard);
      if (random() % 2 == 0) session.fence(guard);
    }
    session.release_all();  // changes nothing
    session.help();
    expect_complete(capture, session);
    EXPECT_EQ(capture.times_done(), 1);
  }
}

// A background copier that is stopped in the middle of the first of two pieces.
class HeldSession {
 public:
  HeldSession() {
    std::ranges::fill(source_.bytes(), std::byte{1});
    session_.release_all();
    source_.arm(1);
    copier_.serve(session_);
    source_.wait_until_held(1);
  }

  CaptureSession& session() { return session_; }
  void change_source() { std::ranges::fill(source_.bytes(), std::byte{2}); }
  void expect_old_bytes() {
    HeldMemory::let_go();
    session_.wait();
    EXPECT_TRUE(session_.done());
    EXPECT_EQ(image_, std::vector<std::byte>(2 * kPiece, std::byte{1}));
    EXPECT_EQ(session_.block_crcs()[0], crc32c(std::span(image_).first(kPiece)));
    EXPECT_TRUE(session_.torn_items().empty());
    EXPECT_EQ(session_.times().pieces_taken_over, 1U);
  }

 private:
  static constexpr std::size_t kPiece = 2 * HeldMemory::kPage;
  HeldMemory source_{4};
  std::vector<std::byte> image_ = std::vector<std::byte>(2 * kPiece);
  CaptureSession session_{{.image = Image(image_, 2 * kPiece, kPiece),
                           .block_bytes = kPiece,
                           .items = {{.source = source_.bytes(), .offset = 0, .guard = 1}},
                           .on_slab = [](std::size_t) {}}};
  BackgroundCopier copier_;
};

TEST(CaptureFence, TakesOverWhatTheBackgroundCopierIsHeldAt) {
  HeldSession held;
  EXPECT_EQ(held.session().pieces_unread(1), 2U);
  held.session().fence(1);  // returns although the copier is still held
  EXPECT_EQ(held.session().pieces_unread(1), 0U);
  EXPECT_FALSE(held.session().finished());
  held.change_source();
  held.expect_old_bytes();
}

TEST(CaptureFence, TwoFencesOfOneGroupBothReturnWhileTheCopierIsHeld) {
  HeldSession held;
  {
    const std::jthread other([&] { held.session().fence(1); });
    held.session().fence_all();
  }
  held.change_source();
  held.expect_old_bytes();
}

// A caller that asks for the background twice, or on two threads, must not have two threads share
// the one slot.
TEST(CaptureFence, ASecondBackgroundCopierLeavesTheWorkToTheFirst) {
  HeldSession held;
  held.session().help_in_background();
  EXPECT_EQ(held.session().pieces_unread(1), 2U);
  held.session().fence(1);
  held.change_source();
  held.session().help_in_background();
  held.expect_old_bytes();
}

TEST(CaptureFence, TwoBackgroundCopiersOfOneSessionDoNoHarm) {
  BackgroundCopier one;
  BackgroundCopier other;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed=" << seed);
    std::mt19937_64 random(seed);
    TilingOptions options = kGuarded;
    options.item_bytes_max = 3'000;
    Capture capture(seed, options, 1'024, 1'024);
    CaptureSession session(capture.spec());
    for (const std::uint32_t guard : shuffled_guards(random)) {
      session.release(guard);
      one.serve(session);
      other.serve(session);
    }
    for (const std::uint32_t guard : shuffled_guards(random)) {
      session.fence(guard);
      capture.change_guarded(guard);
    }
    session.wait();
    expect_complete(capture, session);
  }
}

// A group released while the one background thread was at work must not be forgotten.
TEST(CaptureFence, AllThatWasReleasedBeforeAskingForTheBackgroundIsCopiedInIt) {
  BackgroundCopier one;
  BackgroundCopier other;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed=" << seed);
    std::mt19937_64 random(seed);
    Capture capture(seed, kGuarded, kBlock, kSlab);
    CaptureSession session(capture.spec());
    for (const std::uint32_t guard : shuffled_guards(random)) {
      session.release(guard);
      (random() % 2 == 0 ? one : other).serve(session);
    }
    session.wait();  // nobody else helps
    expect_complete(capture, session);
  }
}

// Likewise with the one thread held past the group that comes late.
TEST(CaptureFence, AGroupBehindTheBackgroundThreadIsCopiedInItsNextRound) {
  HeldMemory source(2);
  std::ranges::fill(source.bytes(), std::byte{1});
  std::vector<std::byte> image(2 * source.bytes().size());
  CaptureSession session(
      {.image = Image(image, image.size(), image.size()),
       .block_bytes = source.bytes().size(),
       .items = {{.source = source.bytes(), .offset = 0, .guard = 2},
                 {.source = source.bytes(), .offset = source.bytes().size(), .guard = 1}},
       .on_slab = [](std::size_t) {}});
  BackgroundCopier copier;
  session.release(2);
  source.arm(1);
  copier.serve(session);
  source.wait_until_held(1);
  session.release(1);
  session.help_in_background();  // leaves it to the held thread
  EXPECT_EQ(session.pieces_unread(1), 1U);
  HeldMemory::let_go();
  session.wait();
  EXPECT_EQ(image, std::vector<std::byte>(image.size(), std::byte{1}));
}

TEST(CaptureTorn, ExactlyTheItemsThatChangedBeforeTheirCopyAreReported) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed=" << seed);
    std::mt19937_64 random(seed);
    Capture capture(seed, kGuarded, kBlock, kSlab);
    CaptureSpec spec = capture.spec();
    spec.witness_seed = seed;
    CaptureSession session(std::move(spec));
    session.release_all();
    std::vector<std::size_t> changed;
    for (std::size_t i = 0; i < capture.items().size(); ++i) {
      const CaptureItem& item = capture.items()[i];
      if (random() % 4 != 0 || item.guard == kUnguarded || item.source.empty()) continue;
      capture.change(i);
      changed.push_back(i);
    }
    EXPECT_EQ(session.unchanged(), changed.empty());
    help_with_threads(session, 3);
    EXPECT_TRUE(session.done());
    EXPECT_EQ(session.torn_items(), changed);
  }
}

TEST(CaptureTorn, WhatNothingGuardsIsNotWitnessed) {
  Capture capture(3, {.image_bytes = 5'000, .item_bytes_max = 900}, kBlock, kSlab);
  CaptureSession session = capture.session();
  capture.change_guarded(kUnguarded);
  EXPECT_TRUE(session.unchanged());
  session.help();
  EXPECT_TRUE(session.torn_items().empty());
}

TEST(CaptureTorn, AChangeAfterTheCopyIsSeenByUnchangedAndDoesNotTear) {
  Capture capture(4, kGuarded, kBlock, kSlab);
  CaptureSession session(capture.spec());
  session.release(2);
  session.fence(2);
  EXPECT_TRUE(session.unchanged());
  capture.change_guarded(1);  // not released yet
  EXPECT_TRUE(session.unchanged());
  capture.change_guarded(1);
  capture.change_guarded(2);
  EXPECT_FALSE(session.unchanged());
  session.release_all();
  session.help();
  expect_complete(capture, session);
}

TEST(CaptureTorn, ParanoidSeesOneChangedByteWhereverItLies) {
  std::vector<std::byte> source(4'000, std::byte{3});
  std::vector<std::byte> image(5'000);
  for (std::size_t at = 0; at < source.size(); at += 13) {
    CaptureSession session({.image = Image(image, 5'000, 1'024),
                            .block_bytes = 512,
                            .items = {{.source = source, .offset = 1'000, .guard = 1}},
                            .on_slab = [](std::size_t) {},
                            .paranoid = true});
    session.release_all();
    EXPECT_TRUE(session.unchanged());
    source[at] ^= std::byte{1};
    EXPECT_FALSE(session.unchanged()) << "byte " << at;
    session.help();
    EXPECT_EQ(session.torn_items(), std::vector<std::size_t>{0}) << "byte " << at;
    source[at] ^= std::byte{1};
  }
}

}  // namespace
}  // namespace deepfreeze::capture_fence_test

#include "staging/capture_session.h"

#include <gtest/gtest.h>

#include <optional>
#include <thread>

#include "staging/capture_fixture.h"

namespace deepfreeze::capture_session_test {
namespace {

constexpr std::uint64_t kBlock = 64;
constexpr std::uint64_t kSlab = 256;

TEST(CaptureSession, RandomTilingsByManyThreadsGiveTheImageItsChecksumsAndEachSlabOnce) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed=" << seed);
    std::mt19937_64 random(seed);
    const TilingOptions options{.image_bytes = random() % 20'000,
                                .item_bytes_max = 1 + random() % (seed % 2 == 0 ? 100 : 5'000),
                                .shuffled = seed % 3 == 0};
    Capture capture(seed, options, kBlock, kSlab);
    CaptureSession session = capture.session();
    help_with_threads(session, 1 + seed % 4);
    expect_complete(capture, session);
  }
}

// A second capture into the memory of a first.
TEST(CaptureSession, BytesThatEqualTheEarlierCopyAreNotCopiedAgain) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed=" << seed);
    std::mt19937_64 random(seed);
    Capture capture(seed,
                    {.image_bytes = 1 + random() % 20'000,
                     .item_bytes_max = 1 + random() % (seed % 2 == 0 ? 100 : 5'000),
                     .guards = 2},
                    kBlock, kSlab);
    {
      CaptureSession first = capture.session();
      help_with_threads(first, 2);
      EXPECT_FALSE(first.has_earlier_copy());
      EXPECT_TRUE(first.has_changed(0)) << "nothing to compare with";
    }
    const std::size_t changed = random() % capture.items().size();
    const bool has_bytes = !capture.items()[changed].source.empty();
    const auto crcs = capture.expected_crcs();
    capture.change(changed);
    capture.expect_changed(changed);
    CaptureSpec spec = capture.spec();
    spec.old_block_crcs = std::make_shared<const std::vector<std::uint32_t>>(crcs);
    capture.forget_announced();
    CaptureSession second(std::move(spec));
    second.release_all();
    if (seed % 3 == 0) second.help_in_background();
    help_with_threads(second, 1 + seed % 3);
    expect_complete(capture, second);
    for (std::size_t item = 0; item < capture.items().size(); ++item) {
      EXPECT_EQ(second.has_changed(item), item == changed && has_bytes) << item;
    }
  }
}

// The arena's memory has rotted since: the block is captured anew.
TEST(CaptureSession, AFlippedBitOfTheEarlierCopyCountsAsAChange) {
  Capture capture(3, {.image_bytes = 1'000, .item_bytes_max = 1'000}, kBlock, kSlab);
  {
    CaptureSession first = capture.session();
    help_with_threads(first, 1);
  }
  capture.image()[500] ^= std::byte{4};
  CaptureSpec spec = capture.spec();
  spec.old_block_crcs = std::make_shared<const std::vector<std::uint32_t>>(capture.expected_crcs());
  capture.forget_announced();
  CaptureSession second(std::move(spec));
  second.release_all();
  second.help();
  expect_complete(capture, second);
}

TEST(CaptureSession, BlocksSharedByShuffledSmallItemsAreFinishedByWhoBringsTheLastBytes) {
  Capture capture(7, {.image_bytes = 3'000'001, .item_bytes_max = 300, .shuffled = true}, 64 * 1024,
                  256 * 1024);
  CaptureSession session = capture.session();
  help_with_threads(session, 4);
  expect_complete(capture, session);
}

TEST(CaptureSession, BigItemsOverManySlabsAreSharedByThreads) {
  Capture capture(8, {.image_bytes = 13'000'003, .item_bytes_max = 9'000'000, .shuffled = false},
                  64 * 1024, 4 * 1024 * 1024);
  CaptureSession session = capture.session();
  help_with_threads(session, 3);
  expect_complete(capture, session);
}

TEST(CaptureSession, SaysOnceThatItIsDoneAfterAllElse) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed=" << seed);
    Capture capture(seed, {.image_bytes = 1 + seed * 37, .item_bytes_max = 90}, kBlock, kSlab);
    CaptureSpec spec = capture.spec();
    std::optional<CaptureSession> session;
    int times_called = 0;  // the ends of the threads order it
    spec.on_done = [&] {
      ++times_called;
      expect_complete(capture, *session);
    };
    session.emplace(std::move(spec));
    session->release_all();
    help_with_threads(*session, 3);
    session->help();
    EXPECT_EQ(times_called, 1);
  }
}

TEST(CaptureSession, IsFinishedWhenItHasSaidThatItIsDone) {
  Capture capture(9, {.image_bytes = 500, .item_bytes_max = 90}, kBlock, kSlab);
  CaptureSpec spec = capture.spec();
  std::optional<CaptureSession> session;
  bool was_finished = true;
  spec.on_done = [&] { was_finished = session->finished(); };
  session.emplace(std::move(spec));
  session->release_all();
  session->help();
  EXPECT_FALSE(was_finished);
  EXPECT_TRUE(session->finished());
}

TEST(CaptureSession, OfAnEmptyImageSaysThatItIsDoneByReleaseAllOnce) {
  Capture capture(1, {.image_bytes = 0}, kBlock, kSlab);
  CaptureSession session(capture.spec());
  EXPECT_EQ(capture.times_done(), 0);
  session.release_all();
  EXPECT_EQ(capture.times_done(), 1);
  session.release_all();
  session.cancel();
  EXPECT_EQ(capture.times_done(), 1);
}

TEST(CaptureSession, OfAnEmptyImageThatWasCancelledNeverSaysThatItIsDone) {
  Capture capture(1, {.image_bytes = 0}, kBlock, kSlab);
  CaptureSession session(capture.spec());
  session.cancel();
  session.release_all();
  EXPECT_EQ(capture.times_done(), 0);
}

TEST(CaptureSession, TimesWhatItCopiesAndChecksums) {
  Capture capture(5, {.image_bytes = 1'000'000, .item_bytes_max = 500'000}, 64 * 1024, 256 * 1024);
  CaptureSession session = capture.session();
  session.help();
  EXPECT_GT(session.times().copy_nanos, 0U);
  EXPECT_GT(session.times().checksum_nanos, 0U);
}

TEST(CaptureSession, OfAnEmptyImageIsDoneAtOnceWithoutSlabs) {
  Capture capture(1, {.image_bytes = 0, .item_bytes_max = 0, .shuffled = false}, kBlock, kSlab);
  capture.items().resize(3);  // zero-length ones
  CaptureSession session = capture.session();
  EXPECT_TRUE(session.done());
  session.wait();
  session.help();
  EXPECT_TRUE(session.block_crcs().empty());
}

TEST(CaptureSession, IsNotDoneBeforeAnybodyHelpedAndHelpAfterwardsChangesNothing) {
  Capture capture(2, {.image_bytes = 1'000, .item_bytes_max = 90, .shuffled = false}, kBlock,
                  kSlab);
  CaptureSession session = capture.session();
  EXPECT_FALSE(session.done());
  session.help();
  expect_complete(capture, session);
  session.help();
  expect_complete(capture, session);
}

TEST(CaptureSession, WaitIsWokenByTheThreadThatFinishes) {
  Capture capture(3, {.image_bytes = 5'000, .item_bytes_max = 700, .shuffled = true}, kBlock,
                  kSlab);
  CaptureSession session = capture.session();
  const CaptureSession other_handle = session;
  bool was_done = false;
  {
    const std::jthread waiter([&] {
      other_handle.wait();
      was_done = other_handle.done();
    });
    session.help();
  }
  EXPECT_TRUE(was_done);
}

TEST(CaptureSession, AHoleInTheTilingKeepsItsSlabBackForEver) {
  Capture capture(4, {.image_bytes = 2'000, .item_bytes_max = 0, .shuffled = false}, kBlock, kSlab);
  const std::span<const std::byte> source = capture.expected();
  capture.items() = {{.source = source.first(600), .offset = 0},
                     {.source = source.subspan(601), .offset = 601}};
  CaptureSession session = capture.session();
  session.help();
  EXPECT_FALSE(session.done());
  EXPECT_EQ(capture.announced(), (std::vector<int>{1, 1, 0, 1, 1, 1, 1, 1}));
}

TEST(CaptureSession, AnItemThatDoesNotLieInsideTheImageIsNotCopied) {
  std::vector<std::byte> memory(128);
  const std::vector<std::byte> source(80, std::byte{0xff});
  CaptureSession session({.image = Image(std::span(memory).first(64), 64, kSlab),
                          .block_bytes = kBlock,
                          .items = {{.source = source, .offset = 0},
                                    {.source = source, .offset = ~std::uint64_t{0} - 8}},
                          .on_slab = [](std::size_t) {}});
  session.release_all();
  session.help();
  EXPECT_FALSE(session.done());
  EXPECT_EQ(memory, std::vector<std::byte>(128));
}

}  // namespace
}  // namespace deepfreeze::capture_session_test

// A session that is given up, in every state: it ends, and leaves sources and image alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "arena/held_memory.h"
#include "staging/background_copier.h"
#include "staging/capture_fixture.h"
#include "staging/copier_pool.h"

namespace deepfreeze::capture_cancel_test {
namespace {

constexpr std::uint64_t kBlock = 64;
constexpr std::uint64_t kSlab = 256;
constexpr TilingOptions kTiling = {.image_bytes = 8'000, .item_bytes_max = 300, .guards = 3};

// And that nothing comes of it any more, whatever is asked.
void expect_over(Capture& capture, CaptureSession& session) {
  EXPECT_TRUE(session.finished());
  EXPECT_FALSE(session.done());
  const std::vector<std::byte> image = capture.image();
  const std::vector<int> announced = capture.announced();
  session.release_all();
  session.help();
  session.help_in_background();
  session.fence_all();
  session.cancel();
  session.wait();
  EXPECT_EQ(capture.image(), image);
  EXPECT_EQ(capture.announced(), announced);
  EXPECT_EQ(capture.times_done(), 0);
}

TEST(CaptureCancel, BeforeAnythingIsReleased) {
  Capture capture(1, kTiling, kBlock, kSlab);
  CaptureSession session(capture.spec());
  EXPECT_FALSE(session.finished());
  session.cancel();
  expect_over(capture, session);
  EXPECT_EQ(capture.image(), std::vector<std::byte>(capture.image().size()));
}

TEST(CaptureCancel, AfterTheReleaseOfSomeOrAll) {
  for (const bool all : {false, true}) {
    Capture capture(2, kTiling, kBlock, kSlab);
    CaptureSession session(capture.spec());
    if (all) session.release_all();
    session.release(2);
    session.fence(2);
    session.cancel();
    expect_over(capture, session);
  }
}

TEST(CaptureCancel, OfASessionThatIsDoneChangesNothing) {
  Capture capture(3, kTiling, kBlock, kSlab);
  CaptureSession session = capture.session();
  session.help();
  session.cancel();
  expect_complete(capture, session);
}

TEST(CaptureCancel, WakesWhoWaits) {
  Capture capture(4, kTiling, kBlock, kSlab);
  CaptureSession session(capture.spec());
  const std::jthread waiter([&] { session.wait(); });
  session.cancel();
}

TEST(CaptureCancel, WhileThreadsCopyLeavesSourcesAndImageToTheCaller) {
  CopierPool pool(2);
  BackgroundCopier background;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed=" << seed);
    Capture capture(seed, {.image_bytes = 40'000, .item_bytes_max = 3'000, .guards = 3}, kBlock,
                    kSlab);
    CaptureSession session = capture.session();
    background.serve(session);
    const std::jthread fencer([&] { pool.run(session, seed % 4); });
    if (seed % 2 == 0) session.fence((seed + 1) % 4);
    session.cancel();
    EXPECT_TRUE(session.finished());
    for (std::uint32_t guard = 0; guard < 4; ++guard) capture.change_guarded(guard);
    std::ranges::fill(capture.image(), std::byte{9});
    session.help();
    EXPECT_EQ(std::ranges::count(capture.image(), std::byte{9}),
              static_cast<std::ptrdiff_t>(capture.image().size()));
  }
}

TEST(CaptureCancel, ByTwoThreadsAtOnceReturnsToBoth) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    Capture capture(seed, kTiling, kBlock, kSlab);
    CaptureSession session = capture.session();
    const std::jthread helper([&] { session.help(); });
    const std::jthread other([&] { session.cancel(); });
    session.cancel();
    EXPECT_TRUE(session.finished());
  }
}

TEST(CaptureCancel, WaitsForTheCopyThatIsUnderWay) {
  HeldMemory source(2);
  std::vector<std::byte> image(4 * HeldMemory::kPage);
  CaptureSession session({.image = Image(image, image.size(), image.size()),
                          .block_bytes = 2 * HeldMemory::kPage,
                          .items = {{.source = source.bytes(), .offset = 0},
                                    {.source = source.bytes(), .offset = source.bytes().size()}},
                          .on_slab = [](std::size_t) {}});
  session.release_all();
  source.arm(1);
  BackgroundCopier copier;
  copier.serve(session);
  source.wait_until_held(1);
  std::atomic<bool> let_go{false};
  bool waited = false;
  {
    const std::jthread canceller([&] {
      session.cancel();
      waited = let_go;
    });
    while (session.pieces_unread(0) > 1) std::this_thread::yield();  // it has begun
    let_go = true;
    HeldMemory::let_go();
  }
  EXPECT_TRUE(waited);
  EXPECT_TRUE(session.finished());
  EXPECT_FALSE(session.done());
}

TEST(CaptureCancel, OfARingWakesAllWhoWaitForRoom) {
  constexpr TilingOptions kRing = {
      .image_bytes = 20 * kSlab, .item_bytes_max = 300, .guards = 3, .ring_slabs = 2};
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed=" << seed);
    Capture capture(seed, kRing, kBlock, kSlab);
    CaptureSession session = capture.session();
    {
      BackgroundCopier background;
      background.serve(session);
      const std::jthread fencer([&] { session.fence(2); });
      const std::jthread helper([&] { session.help(); });
      // Nobody frees a slab: once the first round is full, all three wait at the gate, or soon.
      while (std::ranges::count(capture.announced_now(), 1) < 2) std::this_thread::yield();
      session.cancel();
    }
    expect_over(capture, session);
    EXPECT_EQ(std::ranges::count(capture.announced(), 1), 2);
  }
}

TEST(CaptureCancel, OfARingBeforeItsRelease) {
  Capture capture(7,
                  {.image_bytes = 20 * kSlab, .item_bytes_max = 300, .guards = 3, .ring_slabs = 2},
                  kBlock, kSlab);
  CaptureSession session(capture.spec());
  session.release(1);
  session.cancel();
  expect_over(capture, session);
}

// The owner may free the things that on_done uses: on_done must not end after cancel() returned.
TEST(CaptureCancel, WhatOnDoneUsesMayGoWhenCancelOrWaitHasReturned) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed=" << seed);
    Capture capture(seed, {.image_bytes = 100, .item_bytes_max = 30}, kBlock, kSlab);
    CaptureSpec spec = capture.spec();
    std::atomic<bool> gone{false};
    bool called_late = false;
    spec.on_done = [&] {
      for (int i = 0; i < 20; ++i) std::this_thread::yield();
      called_late = gone;
    };
    CaptureSession session(std::move(spec));
    session.release_all();
    {
      const std::jthread helper([&] { session.help(); });
      if (seed % 2 == 0) {
        while (!session.done()) std::this_thread::yield();
        session.cancel();
      } else {
        session.wait();
      }
      gone = true;
    }
    EXPECT_FALSE(called_late);
  }
}

}  // namespace
}  // namespace deepfreeze::capture_cancel_test

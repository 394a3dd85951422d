#include "staging/background_copier.h"

#include <gtest/gtest.h>

#include <thread>

#include "arena/held_memory.h"
#include "staging/capture_fixture.h"

namespace deepfreeze {
namespace {

constexpr TilingOptions kTiling = {.image_bytes = 9'000, .item_bytes_max = 400, .guards = 2};

TEST(BackgroundCopier, CopiesOneSessionAfterAnotherByItself) {
  BackgroundCopier copier;
  ASSERT_TRUE(copier.works());
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed=" << seed);
    Capture capture(seed, kTiling, 64, 256);
    CaptureSession session = capture.session();
    copier.serve(session);
    session.wait();
    expect_complete(capture, session);
  }
}

TEST(BackgroundCopier, CopiesWhatIsReleasedWhenAskedAgain) {
  Capture capture(3, kTiling, 64, 256);
  CaptureSession session(capture.spec());
  BackgroundCopier copier;
  for (const std::uint32_t guard : {2U, 0U, 1U}) {
    session.release(guard);
    copier.serve(session);
    while (session.pieces_unread(guard) > 0) std::this_thread::yield();
  }
  session.wait();
  expect_complete(capture, session);
}

TEST(BackgroundCopier, IsJoinedIdleAtWorkAndWithASessionThatItNeverBegan) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    Capture capture(seed, kTiling, 64, 256);
    CaptureSession session = capture.session();
    {
      BackgroundCopier copier;
      if (seed % 3 > 0) copier.serve(session);
      if (seed % 3 == 1) session.help();
    }
    session.help();
    session.wait();
    expect_complete(capture, session);
  }
}

TEST(BackgroundCopier, EndsTheSessionAtHandBeforeItIsJoined) {
  HeldMemory source(2);
  std::vector<std::byte> image(source.bytes().size());
  CaptureSession session({.image = Image(image, image.size(), image.size()),
                          .block_bytes = HeldMemory::kPage,
                          .items = {{.source = source.bytes(), .offset = 0}},
                          .on_slab = [](std::size_t) {}});
  session.release_all();
  source.arm(0);
  {
    BackgroundCopier copier;
    copier.serve(session);
    source.wait_until_held(0);
    HeldMemory::let_go();
  }
  EXPECT_TRUE(session.done());
}

TEST(BackgroundCopier, TakesTheNewestOfTheSessionsThatWait) {
  HeldMemory source(1);
  std::vector<std::byte> image(source.bytes().size());
  const CaptureSpec spec = {.image = Image(image, image.size(), image.size()),
                            .block_bytes = HeldMemory::kPage,
                            .items = {{.source = source.bytes(), .offset = 0}},
                            .on_slab = [](std::size_t) {}};
  CaptureSession first(spec);
  first.release_all();
  source.arm(0);
  Capture skipped(1, kTiling, 64, 256);
  CaptureSession second = skipped.session();
  Capture taken(2, kTiling, 64, 256);
  CaptureSession third = taken.session();
  {
    BackgroundCopier copier;
    copier.serve(first);
    source.wait_until_held(0);
    copier.serve(second);
    copier.serve(third);
    HeldMemory::let_go();
    third.wait();
  }
  expect_complete(taken, third);
  EXPECT_EQ(skipped.announced(), std::vector<int>(skipped.announced().size(), 0));
}

}  // namespace
}  // namespace deepfreeze

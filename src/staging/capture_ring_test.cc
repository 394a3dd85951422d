// Ring mode: the data section passes through memory that holds a few of its slabs.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <thread>

#include "base/bounded_queue.h"
#include "staging/background_copier.h"
#include "staging/capture_fixture.h"
#include "staging/copier_pool.h"
#include "support/sanitized.h"

namespace deepfreeze::capture_ring_test {
namespace {

constexpr std::uint64_t kBlock = 64;
constexpr std::uint64_t kSlab = 256;
constexpr std::uint64_t kSlabs = 20;
constexpr std::uint32_t kGuards = 3;

TilingOptions ring_of(std::uint64_t slabs) {
  return {.image_bytes = kSlabs * kSlab - 77,
          .item_bytes_max = 700,
          .guards = kGuards,
          .ring_slabs = slabs};
}

// Takes each announced slab from memory and frees it, late, and some out of turn.
class Writer {
 public:
  Writer(Capture& capture, std::uint64_t seed)
      : capture_(capture), random_(seed), written_(capture.expected().size()) {}

  [[nodiscard]] CaptureSpec spec() {
    CaptureSpec spec = capture_.spec();
    image_ = spec.image;
    spec.on_slab = [this, note = spec.on_slab](std::size_t slab) {
      note(slab);
      slabs_.push(slab);
    };
    return spec;
  }
  void start(const CaptureSession& session) {
    session_ = session;
    thread_ = std::jthread([this] { write(); });
  }
  const std::vector<std::byte>& end() {
    slabs_.close();
    thread_.join();
    return written_;
  }

 private:
  void write() {
    std::vector<std::size_t> kept;
    std::vector<bool> freed(kSlabs);
    while (const auto slab = slabs_.pop()) {
      for (std::uint64_t i = random_() % 4; i > 0; --i) std::this_thread::yield();
      std::ranges::copy(image_.slab(*slab),
                        written_.begin() + static_cast<std::ptrdiff_t>(*slab * kSlab));
      kept.push_back(*slab);
      // The next slabs may all wait for the oldest, so that one is never kept.
      const auto oldest = std::ranges::find(freed, false) - freed.begin();
      if (static_cast<std::ptrdiff_t>(*slab) != oldest && random_() % 2 == 0) continue;
      std::ranges::shuffle(kept, random_);
      for (const std::size_t done : kept) {
        freed[done] = true;
        session_->free_slab(done);
      }
      kept.clear();
    }
  }

  Capture& capture_;
  std::mt19937_64 random_;
  Image image_;
  std::vector<std::byte> written_;
  BoundedQueue<std::size_t> slabs_{kSlabs};
  std::optional<CaptureSession> session_;
  std::jthread thread_;
};

TEST(CaptureRing, EachSlabIsWholeWhenAnnouncedAndStaysUntilItIsFreed) {
  CopierPool pool(2);
  BackgroundCopier background;
  for (std::uint64_t seed = 1; seed <= (kSanitized ? 100 : 300); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed=" << seed);
    Capture capture(seed, ring_of(2 + seed % 3), kBlock, kSlab);
    Writer writer(capture, seed);
    CaptureSession session(writer.spec());
    writer.start(session);
    session.release_all();
    if (seed % 2 == 0) background.serve(session);
    for (std::uint32_t i = 0; i <= kGuards; ++i) {
      const std::uint32_t guard = (i + static_cast<std::uint32_t>(seed)) % (kGuards + 1);
      if (seed % 3 == 0) pool.run(session, guard);
      session.fence(guard);
      capture.change_guarded(guard);
    }
    session.help();
    session.wait();
    EXPECT_EQ(writer.end(), capture.expected());
    expect_complete(capture, session);
    EXPECT_EQ(capture.times_done(), 1);
  }
}

TEST(CaptureRing, NothingIsCopiedBeforeAllGroupsAreReleased) {
  Capture capture(1, ring_of(2), kBlock, kSlab);
  CaptureSession session(capture.spec());
  for (std::uint32_t guard = 0; guard < kGuards; ++guard) {
    session.release(guard);
    session.help();
    session.help_in_background();
    session.fence(guard);
  }
  EXPECT_EQ(capture.image(), std::vector<std::byte>(2 * kSlab));
}

TEST(CaptureRing, AFenceNeedsNoMoreRoomThanItsOwnGroup) {
  Capture capture(3, {.image_bytes = kSlabs * kSlab, .ring_slabs = 2}, kBlock, kSlab);
  const std::span<const std::byte> source = capture.expected();
  capture.items() = {{.source = source.first(kSlab), .offset = 0, .guard = 1},
                     {.source = source.subspan(kSlab), .offset = kSlab, .guard = 2}};
  CaptureSession session = capture.session();
  session.fence(1);  // returns although nobody ever frees a slab
  EXPECT_EQ(session.pieces_unread(1), 0U);
  EXPECT_GT(session.pieces_unread(2), 0U);
  session.cancel();
}

TEST(CaptureRing, FillsItsFirstRoundWithoutAWriter) {
  Capture capture(2, ring_of(4), kBlock, kSlab);
  CaptureSession session = capture.session();
  const std::jthread helper([&] { session.help(); });
  while (std::ranges::count(capture.announced_now(), 1) < 4) std::this_thread::yield();
  session.cancel();
  const std::span<const std::byte> expected = capture.expected();
  EXPECT_TRUE(std::ranges::equal(capture.image(), expected.first(4 * kSlab)));
}

}  // namespace
}  // namespace deepfreeze::capture_ring_test

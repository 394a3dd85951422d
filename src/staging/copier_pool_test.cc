#include "staging/copier_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>

#include "arena/held_memory.h"
#include "base/log.h"
#include "base/named_threads.h"
#include "staging/capture_fixture.h"
#include "support/no_more_threads.h"

namespace deepfreeze {
namespace {

void expect_copies(CopierPool& pool, std::uint64_t seed) {
  SCOPED_TRACE(testing::Message() << "seed=" << seed);
  Capture capture(
      seed, {.image_bytes = seed * 997 % 40'000, .item_bytes_max = 500, .shuffled = seed % 2 == 0},
      64, 256);
  CaptureSession session = capture.session();
  pool.run(session, kUnguarded);
  session.wait();
  EXPECT_TRUE(session.done());
  EXPECT_EQ(capture.taken(), capture.expected());
  EXPECT_EQ(copy_of(session.block_crcs()), capture.expected_crcs());
}

TEST(CopierPool, CopiesOneSessionAfterAnother) {
  CopierPool pool(3);
  for (std::uint64_t seed = 1; seed <= 300; ++seed) expect_copies(pool, seed);
}

TEST(CopierPool, WithoutThreadsTheCallerCopiesAlone) {
  CopierPool pool(0);
  expect_copies(pool, 5);
}

TEST(CopierPool, TwoRunsAtOnceAreBothCompleted) {
  CopierPool pool(2);
  const auto runs = [&pool](std::uint64_t first) {
    for (std::uint64_t seed = first; seed < first + 100; ++seed) expect_copies(pool, seed);
  };
  const std::jthread other([&] { runs(1'000); });
  runs(2'000);
}

TEST(CopierPool, RunWaitsForAThreadThatStillReadsTheGroup) {
  HeldMemory source(2);
  std::vector<std::byte> image(source.bytes().size());
  CaptureSession session({.image = Image(image, image.size(), image.size()),
                          .block_bytes = image.size(),
                          .items = {{.source = source.bytes(), .offset = 0, .guard = 1}},
                          .on_slab = [](std::size_t) {}});
  session.release_all();
  source.arm(1);
  const std::jthread reader([&] { session.help(); });
  source.wait_until_held(1);
  std::atomic<bool> let_go{false};
  bool waited = false;
  {
    CopierPool pool(1);
    const std::jthread runner([&] {
      pool.run(session, 1);
      waited = let_go;
    });
    for (int i = 0; i < 100; ++i) std::this_thread::yield();  // room for a run() that is wrong
    let_go = true;
    HeldMemory::let_go();
  }
  EXPECT_TRUE(waited);
}

TEST(CopierPool, IdleThreadsAreJoined) {
  for (int i = 0; i < 50; ++i) CopierPool pool(4);
}

TEST(CopierPool, CopiesAloneWhereNoThreadCanBeStarted) {
  std::string log;
  set_log_sink([&](std::string_view line) { log += line; });
  {
    const NoMoreThreads scope;
    CopierPool pool(4);
    expect_copies(pool, 6);
  }
  set_log_sink({});
  EXPECT_TRUE(log.contains("only 0 of 4 df-copy threads could be started")) << log;
}

TEST(StartThreads, NamesThemAndRunsTheBodyOnEach) {
  std::atomic<int> rightly_named{0};
  start_threads(3, "df-test", [&] {
    char name[16] = {};
    ::pthread_getname_np(::pthread_self(), name, sizeof name);
    if (std::string_view(name) == "df-test") ++rightly_named;
  }).clear();
  EXPECT_EQ(rightly_named, 3);
}

}  // namespace
}  // namespace deepfreeze

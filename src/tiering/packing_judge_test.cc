#include "tiering/packing_judge.h"

#include <gtest/gtest.h>

namespace deepfreeze {
namespace {

constexpr std::uint64_t kSlab = 4U << 20U;
constexpr std::uint64_t kLong = 250 * kSlab;

// A link and a core with these rates, in bytes per second; slabs go one by one.
struct Course {
  double link;
  double packing;
  PackingJudge judge = {};

  // Sends the slabs of a file, and packs those that are to be; how many were.
  int send(int slabs, std::uint64_t file_bytes = kLong) {
    int packed = 0;
    for (int i = 0; i < slabs; ++i) {
      const bool pays = judge.pays(file_bytes);
      if (pays) judge.note_packed(kSlab, static_cast<double>(kSlab) / packing);
      const std::uint64_t bytes = pays ? kSlab * 5 / 6 : kSlab;
      judge.note_sent(bytes, static_cast<double>(bytes) / link);
      packed += pays ? 1 : 0;
    }
    return packed;
  }
};

TEST(PackingJudge, ASlowLinkGetsPackedBlocksAsSoonAsItIsKnown) {
  for (const double link : {0.05e9, 0.3e9}) {
    Course course{.link = link, .packing = 1e9};
    EXPECT_EQ(course.send(2), 0);
    EXPECT_EQ(course.send(100), 100);
    EXPECT_FALSE(course.judge.is_idle(kLong));
  }
}

TEST(PackingJudge, AFastLinkGetsPlainFiles) {
  Course course{.link = 4e9, .packing = 1.5e9};
  EXPECT_FALSE(course.judge.is_idle(kLong));  // not known yet
  EXPECT_EQ(course.send(100), 0);
  EXPECT_TRUE(course.judge.is_idle(kLong));
}

TEST(PackingJudge, SlowCoresTryTwoSlabsAndStop) {
  Course course{.link = 0.3e9, .packing = 0.2e9};
  EXPECT_LE(course.send(100), 2);
  EXPECT_TRUE(course.judge.is_idle(kLong));
}

TEST(PackingJudge, SlowCoresAreTriedAgainAfterGigabytes) {
  Course course{.link = 0.3e9, .packing = 0.2e9};
  course.send(100);
  course.packing = 1e9;
  EXPECT_GT(course.send(2'000), 500);
}

TEST(PackingJudge, ALinkThatBecomesSlowIsNoticed) {
  Course course{.link = 4e9, .packing = 1e9};
  course.send(100);
  course.link = 0.1e9;
  EXPECT_GT(course.send(40), 20);
  course.link = 4e9;
  EXPECT_LT(course.send(200), 100);
  EXPECT_TRUE(course.judge.is_idle(kLong));
}

// A store takes the first bytes into memory, and waits for them at the end.
TEST(PackingJudge, TheEndOfAFileCounts) {
  PackingJudge judge;
  judge.note_sent(4 * kSlab, 0.001);
  EXPECT_FALSE(judge.pays(kLong));
  judge.note_sent(0, 4 * kSlab / 0.05e9);
  EXPECT_TRUE(judge.pays(kLong));
}

TEST(PackingJudge, ShortFilesNeedASlowerLink) {
  Course course{.link = 0.2e9, .packing = 1e9};
  EXPECT_EQ(course.send(100, kSlab), 0);
  course.link = 0.02e9;
  EXPECT_GT(course.send(100, kSlab), 50);
}

TEST(PackingJudge, ALinkThatTakesNoTimeIsFast) {
  PackingJudge judge;
  judge.note_sent(kLong, 0);
  EXPECT_FALSE(judge.pays(kLong));
  EXPECT_TRUE(judge.is_idle(kLong));
}

}  // namespace
}  // namespace deepfreeze

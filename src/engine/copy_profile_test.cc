#include "engine/copy_profile.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace deepfreeze {
namespace {

TEST(CopyProfile, ACoreIsFreeWhereHalfOfOneWasLeft) {
  EXPECT_TRUE(leaves_a_core({.wall_seconds = 1, .cpu_seconds = 1.4}, 2));
  EXPECT_FALSE(leaves_a_core({.wall_seconds = 1, .cpu_seconds = 1.6}, 2));
  EXPECT_FALSE(leaves_a_core({.wall_seconds = 1, .cpu_seconds = 0.9}, 1));
}

TEST(CopyProfile, WhatIsAskedForIsTaken) {
  EXPECT_EQ(CopyProfile(Profile::kLatency, 2).next(), CopyTime::kBehind);
  EXPECT_EQ(CopyProfile(Profile::kThroughput, 1'000).next(), CopyTime::kAtOnce);
}

TEST(CopyProfile, AutoBeginsAtOnceAndFindsThatASleeperLeavesItsCores) {
  CopyProfile profile(Profile::kAuto, 2);
  EXPECT_EQ(profile.next(), CopyTime::kAtOnce);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(profile.next(), CopyTime::kBehind);
}

}  // namespace
}  // namespace deepfreeze

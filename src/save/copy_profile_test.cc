#include "save/copy_profile.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace deepfreeze {
namespace {

TEST(CopyProfile, ACoreIsFreeWhereOneWasLeftOnAverage) {
  EXPECT_TRUE(leaves_a_core({.wall_seconds = 1, .cpu_seconds = 0.9}, 2));
  EXPECT_FALSE(leaves_a_core({.wall_seconds = 1, .cpu_seconds = 1.1}, 2));
  EXPECT_TRUE(leaves_a_core({.wall_seconds = 2, .cpu_seconds = 13.9}, 8));
  EXPECT_FALSE(leaves_a_core({.wall_seconds = 1, .cpu_seconds = 0.1}, 1));
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

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
  EXPECT_EQ(CopyProfile(Profile::kLatency, 2).next(false), CopierPriority::kNormal);
  EXPECT_EQ(CopyProfile(Profile::kThroughput, 2).next(false), CopierPriority::kIdle);
}

TEST(CopyProfile, AutoIsNormalOnceASaveHadToWaitForTheOneBefore) {
  CopyProfile profile(Profile::kAuto, 1'000);
  EXPECT_EQ(CopyProfile(Profile::kThroughput, 2).next(true), CopierPriority::kIdle);
  EXPECT_EQ(profile.next(true), CopierPriority::kNormal);
  EXPECT_EQ(profile.next(false), CopierPriority::kNormal);
}

TEST(CopyProfile, AutoBeginsIdleAndFindsThatASleeperLeavesItsCores) {
  CopyProfile profile(Profile::kAuto, 2);
  EXPECT_EQ(profile.next(false), CopierPriority::kIdle);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(profile.next(false), CopierPriority::kNormal);
}

}  // namespace
}  // namespace deepfreeze

#include "staging/slab_gate.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>

namespace deepfreeze {
namespace {

TEST(SlabGate, WithoutARingNothingWaits) {
  SlabGate gate(0);
  EXPECT_TRUE(gate.wait(0));
  EXPECT_TRUE(gate.wait(1'000'000));
  gate.free(3);
}

TEST(SlabGate, TheFirstRoundIsFreeFromTheStart) {
  SlabGate gate(3);
  for (const std::uint64_t slab : {2U, 0U, 1U, 0U}) EXPECT_TRUE(gate.wait(slab));
}

TEST(SlabGate, ASlabWaitsForTheOneBeforeItInItsPlaceOnly) {
  SlabGate gate(2);
  std::atomic<bool> may_pass{false};
  bool passed_early = false;
  {
    const std::jthread waiter([&] { passed_early = gate.wait(2) && !may_pass; });
    gate.free(1);  // its place is the other one
    EXPECT_TRUE(gate.wait(3));
    may_pass = true;
    gate.free(0);
  }
  EXPECT_FALSE(passed_early);
}

TEST(SlabGate, PlacesAreFreedInAnyOrderRoundByRound) {
  SlabGate gate(2);
  for (std::uint64_t slab = 0; slab < 100; slab += 2) {
    gate.free(slab + 1);
    gate.free(slab);
    EXPECT_TRUE(gate.wait(slab + 2));
    EXPECT_TRUE(gate.wait(slab + 3));
  }
}

// A ring is right if a place is never in use twice.
TEST(SlabGate, NoPlaceHoldsTwoSlabsAtOnce) {
  constexpr std::uint64_t kSlots = 3;
  constexpr std::uint64_t kSlabs = 3'000;
  SlabGate gate(kSlots);
  std::array<std::atomic<int>, kSlots> users{};
  std::atomic<std::uint64_t> next{0};
  std::atomic<bool> shared{false};
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        for (std::uint64_t slab = next++; slab < kSlabs; slab = next++) {
          if (!gate.wait(slab)) return;
          if (users[slab % kSlots]++ != 0) shared = true;
          if (slab % 7 == 0) std::this_thread::yield();
          --users[slab % kSlots];
          gate.free(slab);
        }
      });
    }
  }
  EXPECT_FALSE(shared);
}

TEST(SlabGate, OpenForGoodWakesWhoWaitsAndLetsNobodyCopy) {
  SlabGate gate(2);
  bool may_copy = true;
  {
    const std::jthread waiter([&] { may_copy = gate.wait(5); });
    gate.open_for_good();
  }
  EXPECT_FALSE(may_copy);
  EXPECT_FALSE(gate.wait(0));
}

}  // namespace
}  // namespace deepfreeze

// DEEPFREEZE_RACE_SECONDS=300: for so long, else a fixed number of rounds.
// DEEPFREEZE_RACE_SEED=17: begins with that round; a failure names the seed that repeats it.
#include <gtest/gtest.h>

#include <iostream>
#include <string>

#include "base/clock.h"
#include "race/session_race.h"
#include "support/number_from.h"
#include "support/sanitized.h"

namespace deepfreeze {
namespace {

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define DF_UNDER_TSAN
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define DF_UNDER_TSAN
#endif

constexpr std::uint64_t kRounds = kSanitized ? 600 : 2'000;
constexpr std::uint64_t kControlRounds = 100;

void print(const RaceCounts& counts, std::uint64_t seed, double seconds) {
  std::cout << counts.sessions << " sessions, " << counts.fences << " fences, "
            << counts.pieces_taken_over << " take-overs, " << counts.in_a_ring << " in a ring, "
            << counts.after_update << " after update, " << counts.cancelled << " to be cancelled, "
            << counts.unfenced << " unfenced; from seed " << seed << "; " << seconds << " s\n";
}

TEST(SessionRace, EverySessionIsOneStepToTheByteAndNoneIsTorn) {
  const std::uint64_t first_seed = number_from("DEEPFREEZE_RACE_SEED", 1);
  const std::uint64_t seconds = number_from("DEEPFREEZE_RACE_SECONDS", 0);
  const auto started = Monotonic::now();
  SessionRace race;
  for (std::uint64_t i = 0;
       seconds > 0 ? seconds_since(started) < static_cast<double>(seconds) : i < kRounds; ++i) {
    const auto fault = race.round(first_seed + i);
    ASSERT_FALSE(fault) << *fault;
  }
  print(race.counts(), first_seed, seconds_since(started));
}

// The race must be able to lose: if fences are left out it has to notice.
TEST(SessionRace, SessionsWithoutAFenceAreFoundOut) {
#ifdef DF_UNDER_TSAN
  GTEST_SKIP() << "LEFT OUT: it is a race, which tsan would report";
#endif
  const auto started = Monotonic::now();
  SessionRace race(4);
  for (std::uint64_t seed = 1; seed <= kControlRounds; ++seed) {
    const auto fault = race.round(seed);
    ASSERT_FALSE(fault) << *fault;
  }
  print(race.counts(), 1, seconds_since(started));
  std::cout << race.unfenced_found_out() << " of " << race.counts().unfenced << " found out\n";
  EXPECT_GT(race.unfenced_found_out(), 0U);
}

}  // namespace
}  // namespace deepfreeze

// Lives from seeds, with power cuts at random operations: the disks that each may leave are
// checked, one of these disks lives on, and the power is cut there again.
//
// DEEPFREEZE_CRASH_STATES says how many disks are checked in all; DEEPFREEZE_CRASH_SEED replays one
// life.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>

#include "crash/invariants.h"
#include "crash/random_life.h"
#include "support/number_from.h"

namespace deepfreeze::random_crash_test {
namespace {

constexpr std::uint64_t kShards = 4;              // tests that run beside each other
constexpr std::size_t kStates = DF_CRASH_STATES;  // fewer under a sanitizer
constexpr std::size_t kImagesMax = 150;
constexpr std::size_t kCutsMax = 4;  // of one life
constexpr std::size_t kActionsMax = 7;
constexpr std::size_t kOperationsMax = 150;

class CutLife {
 public:
  explicit CutLife(std::uint64_t seed) : seed_(seed), random_(seed) {}

  // Returns how many disks were checked.
  std::size_t run() {
    auto disk = std::make_unique<SimDisk>();
    RunLife life(*disk);
    std::size_t states = live_and_cut(*disk, life);
    if (next_ == nullptr) return states;
    for (std::size_t cut = 1 + random_() % kCutsMax; cut > 1 && !testing::Test::HasFailure();
         --cut) {
      states += live_on();
    }
    return states;
  }

 private:
  std::size_t live_on() {
    const auto disk = std::move(next_);
    story_ += "POWER CUT (" + disk->label() + "); ";
    RunLife life(*disk, promises_);
    return live_and_cut(*disk, life);
  }

  std::size_t live_and_cut(SimDisk& disk, RunLife& life) {
    disk.crash_at(random_() % kOperationsMax);
    RandomLife random_life(disk, life, random_);
    random_life.live(1 + random_() % kActionsMax);
    story_ += random_life.story();
    disk.power_off();
    return check_images(disk, life);
  }

  std::size_t check_images(const SimDisk& disk, const RunLife& life) {
    std::size_t states = 0;
    disk.for_each_crash_image(kImagesMax, random_(), [&](SimDisk& image) {
      // Each is the one that lives on with the same chance.
      if (random_() % ++states == 0) next_ = image.clone();
      check(image, life);
    });
    promises_ = life.promises();
    return states;
  }

  void check(SimDisk& image, const RunLife& life) {
    auto broken = broken_invariant(image, life.promises());
    if (!broken) broken = broken_future(image, life.promises());
    EXPECT_FALSE(broken.has_value()) << "DEEPFREEZE_CRASH_SEED=" << seed_ << ": " << story_
                                     << "POWER CUT (" << image.label() << ")\n  " << *broken;
  }

  std::uint64_t seed_;
  std::mt19937_64 random_;
  std::string story_;
  std::unique_ptr<SimDisk> next_;  // the disk that one of the power cuts left
  Promises promises_;              // until then
};

class RandomCrash : public testing::TestWithParam<std::uint64_t> {
 protected:
  RandomCrash() {
    set_log_sink([](std::string_view) {});
  }  // repairs are expected
  ~RandomCrash() override { set_log_sink({}); }
};

TEST_P(RandomCrash, EveryPromiseHoldsAfterEachOfSeveralPowerCuts) {
  if (const auto seed = number_from("DEEPFREEZE_CRASH_SEED")) {
    CutLife(*seed).run();
    return;
  }
  const std::size_t wanted = number_from("DEEPFREEZE_CRASH_STATES").value_or(kStates) / kShards;
  std::size_t states = 0;
  std::uint64_t lives = 0;
  for (std::uint64_t seed = GetParam(); states < wanted && !HasFailure(); seed += kShards) {
    states += CutLife(seed).run();
    ++lives;
  }
  std::printf("%zu states after power cuts in %zu lives\n", states,
              static_cast<std::size_t>(lives));
}
INSTANTIATE_TEST_SUITE_P(Seeds, RandomCrash, testing::Range(std::uint64_t{1}, kShards + 1));

}  // namespace
}  // namespace deepfreeze::random_crash_test

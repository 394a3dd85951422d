// Jobs on two and three machines with simulated disks: letters are lost, doubled and late,
// processes die and machines lose power at any operation on a disk and at any letter, agents go on
// for processes that died, a job begins while the processes of another live on. After each life the
// promises hold, and the next job saves.
//
// DEEPFREEZE_NODE_LIVES says how many random lives there are in all; DEEPFREEZE_NODE_SEED replays
// one.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/log.h"
#include "nodes/crash/life.h"
#include "support/number_from.h"
#include "support/sanitized.h"

namespace deepfreeze::nodes_test {
namespace {

constexpr std::uint64_t kShards = 4;           // tests that run beside each other
constexpr std::size_t kLives = DF_NODE_LIVES;  // fewer under a sanitizer
constexpr std::size_t kStrikesMax = 3;
constexpr std::size_t kEventsMax = 600;
constexpr std::size_t kMutantLivesMax = 20'000;
constexpr std::size_t kKindsOfBlows = 6;

class NodesCrash : public testing::Test {
 protected:
  NodesCrash() {
    set_log_sink([](std::string_view) {});
  }
  ~NodesCrash() override { set_log_sink({}); }
};

LifePlan random_plan(std::uint64_t seed, Mutant mutant = Mutant::kNone, bool has_heirs = false) {
  std::mt19937_64 random(~seed);
  LifePlan plan{.seed = seed,
                .machines = 2 + seed % 2,
                .strikes = {},
                .mutant = mutant,
                .has_heirs = has_heirs};
  for (std::size_t count = random() % (kStrikesMax + 1); count > 0; --count) {
    plan.strikes.push_back(
        {.event = random() % kEventsMax, .blow = static_cast<Blow>(random() % 3)});
  }
  return plan;
}

// False if a promise was broken.
bool lives_well(const LifePlan& plan, std::size_t* told = nullptr) {
  Life life(plan);
  const auto broken = life.live();
  if (told != nullptr) *told += life.told();
  if (!broken) return true;
  ADD_FAILURE() << *broken << "\nDEEPFREEZE_NODE_SEED=" << plan.seed << "\n" << life.story();
  return false;
}

class RandomNodes : public NodesCrash, public testing::WithParamInterface<std::uint64_t> {
 protected:
  static void expect_good_lives(bool has_heirs) {
    if (const auto seed = number_from("DEEPFREEZE_NODE_SEED")) {
      std::ignore = lives_well(random_plan(*seed, Mutant::kNone, has_heirs));
      return;
    }
    const std::size_t lives = number_from("DEEPFREEZE_NODE_LIVES").value_or(kLives) / kShards;
    std::size_t told = 0;
    for (std::size_t i = 0; i < lives && !HasFailure(); ++i) {
      const std::uint64_t seed = GetParam() + i * kShards;
      std::ignore = lives_well(random_plan(seed, Mutant::kNone, has_heirs), &told);
    }
    std::printf("%zu lives of jobs on several machines, %zu acknowledgements kept\n", lives, told);
    EXPECT_GT(told, lives / 2);
  }
};

TEST_P(RandomNodes, EveryPromiseHolds) { expect_good_lives(false); }
TEST_P(RandomNodes, EveryPromiseHoldsWithHeirs) { expect_good_lives(true); }
INSTANTIATE_TEST_SUITE_P(Seeds, RandomNodes, testing::Range(std::uint64_t{1}, kShards + 1));

// Every event of one job's save: an operation on a disk, a letter sent, a letter come. Each has
// each blow, with heirs and without; under a sanitizer one of these six, in turn.
class EveryBlow : public NodesCrash, public testing::WithParamInterface<std::size_t> {};

TEST_P(EveryBlow, AtEachEventKeepsEveryPromise) {
  const LifePlan calm{.seed = 7, .machines = GetParam(), .strikes = {}, .is_random = false};
  Life whole(calm);
  ASSERT_EQ(whole.live(), std::nullopt) << whole.story();
  std::size_t lives = 0;
  for (std::size_t event = 0; event < whole.events(); ++event) {
    std::size_t kind = 0;
    for (const Blow blow : {Blow::kProcess, Blow::kAllProcesses, Blow::kPower}) {
      for (const bool has_heirs : {false, true}) {
        if (kSanitized && kind++ != event % kKindsOfBlows) continue;
        ++lives;
        LifePlan plan = calm;
        plan.strikes = {{.event = event, .blow = blow}};
        plan.has_heirs = has_heirs;
        ASSERT_TRUE(lives_well(plan));
      }
    }
  }
  std::printf("%zu events, %zu lives with a blow at one of them\n", whole.events(), lives);
  EXPECT_EQ(lives, whole.events() * (kSanitized ? 1 : kKindsOfBlows));
}
INSTANTIATE_TEST_SUITE_P(Machines, EveryBlow, testing::Values(2, 3));

// Would the lives notice? Each step that is left out breaks a promise in one of them. The search
// begins at a seed that lies close to such a life.
struct MutantCase {
  const char* name;
  Mutant mutant;
  std::uint64_t first_seed = 1;
};

class NodeMutant : public NodesCrash, public testing::WithParamInterface<MutantCase> {};

TEST_P(NodeMutant, BreaksAPromise) {
  const auto [name, mutant, usual] = GetParam();
  const std::uint64_t first = number_from("DEEPFREEZE_NODE_SEED").value_or(usual);
  for (std::uint64_t seed = first; seed < first + kMutantLivesMax; ++seed) {
    Life life(random_plan(seed, mutant));
    if (const auto broken = life.live()) {
      std::printf("seed %zu, after %zu lives: %s\n", static_cast<std::size_t>(seed),
                  static_cast<std::size_t>(seed - first + 1), broken->c_str());
      return;
    }
  }
  FAIL() << name << ": no promise was broken in " << kMutantLivesMax << " lives";
}
INSTANTIATE_TEST_SUITE_P(Mutants, NodeMutant,
                         testing::Values(MutantCase{"NoLeaderSync", Mutant::kNoLeaderSync, 10700},
                                         MutantCase{"FailedRankAborts", Mutant::kFailedRankAborts},
                                         MutantCase{"TimeoutAborts", Mutant::kTimeoutAborts},
                                         MutantCase{"AnswerBeforeSync", Mutant::kAnswerBeforeSync,
                                                    15010},
                                         MutantCase{"OneRound", Mutant::kOneRound, 6100},
                                         MutantCase{"AbortInDoubt", Mutant::kAbortInDoubt}),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace deepfreeze::nodes_test

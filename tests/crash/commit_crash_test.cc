// Power is cut at every operation of every scenario, and every state that this may leave is
// checked.
#include <gtest/gtest.h>

#include "crash/invariants.h"

namespace deepfreeze {
namespace {

constexpr std::size_t kImagesMax = 150;  // per cut; fewer if there are not so many
constexpr std::uint64_t kSeed = 71;

std::size_t count_operations(const Scenario& scenario) {
  SimDisk disk;
  RunLife life(disk);
  const Status status = scenario.run(life);
  EXPECT_TRUE(status.has_value()) << scenario.name << ": " << status.error().message();
  return disk.operation_count();
}

// Returns how many states were checked.
std::size_t cut_power_at(const Scenario& scenario, std::size_t index) {
  SimDisk disk;
  disk.crash_at(index);
  RunLife life(disk);
  std::ignore = scenario.run(life);
  const auto images = disk.crash_images(kImagesMax, kSeed);
  for (const auto& image : images) {
    auto broken = broken_invariant(*image, life.promises());
    if (!broken) broken = broken_future(*image, life.promises());
    EXPECT_FALSE(broken.has_value())
        << scenario.name << ", cut at operation " << index << " (" << life.phase_at(index)
        << "), seed " << kSeed << ", " << image->label() << "\n  " << *broken;
  }
  return images.size();
}

using CommitCrash = EachScenario;
TEST_P(CommitCrash, EveryPromiseHoldsAfterAPowerCutAnywhere) {
  const std::size_t count = count_operations(scenario());
  std::size_t states = 0;
  for (std::size_t index = 0; index <= count; ++index) {
    states += cut_power_at(scenario(), index);
    ASSERT_FALSE(HasFailure());  // the first one tells most
  }
  std::printf("%zu power cuts, %zu states after them\n", count + 1, states);
  EXPECT_GT(states, count);
}
INSTANTIATE_TEST_SUITE_P(Scenarios, CommitCrash, testing::Range(std::size_t{0}, scenarios().size()),
                         scenario_name);

}  // namespace
}  // namespace deepfreeze

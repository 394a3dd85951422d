// Every operation of every scenario fails once, with EIO and with ENOSPC.
#include <gtest/gtest.h>

#include <cerrno>

#include "crash/invariants.h"

namespace deepfreeze {
namespace {

constexpr std::size_t kImagesMax = 20;
constexpr std::uint64_t kSeed = 72;

// Whether the scenario came to its end in spite of the error.
bool fail_once(const Scenario& scenario, std::size_t index, int os_errno) {
  SimDisk disk;
  disk.fail_at(index, os_errno);
  RunLife life(disk);
  const Status status = scenario.run(life);
  const std::string where = scenario.name + ", errno " + std::to_string(os_errno) +
                            " at operation " + std::to_string(index) + " (" + life.phase_at(index) +
                            ")";
  for (const auto& image : disk.crash_images(kImagesMax, kSeed)) {
    const auto broken = broken_invariant(*image, life.promises());
    EXPECT_FALSE(broken.has_value())
        << where << ", then cut, seed " << kSeed << ", " << image->label() << "\n  " << *broken;
  }
  if (life.may_save()) {  // the process goes on
    EXPECT_TRUE(life.save(900).has_value()) << where;
  }
  auto broken = broken_invariant(disk, life.promises());
  if (!broken) broken = broken_future(disk, life.promises());
  EXPECT_FALSE(broken.has_value()) << where << "\n  " << *broken;
  EXPECT_EQ(disk.open_files(), 0U) << where;
  return status.has_value();
}

using IoError = EachScenario;
TEST_P(IoError, NoAcknowledgedStepIsLostAndTheNextSaveWorks) {
  SimDisk disk;
  RunLife life(disk);
  ASSERT_TRUE(scenario().run(life).has_value());
  std::size_t survived = 0;
  for (std::size_t index = 0; index < disk.operation_count(); ++index) {
    for (const int os_errno : {EIO, ENOSPC}) {
      if (fail_once(scenario(), index, os_errno)) ++survived;
    }
    ASSERT_FALSE(HasFailure());  // the first one tells most
  }
  EXPECT_EQ(survived, 0U) << "an error was passed over";
}
INSTANTIATE_TEST_SUITE_P(Scenarios, IoError, testing::Range(std::size_t{0}, scenarios().size()),
                         scenario_name);

}  // namespace
}  // namespace deepfreeze

// Is every sync needed? Each one is left out in turn, and some power cut must then break an
// invariant. A sync that nothing needs is a stall that nobody wants, or an invariant forgotten.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "crash/invariants.h"

namespace deepfreeze::sync_mutation_test {
namespace {

constexpr std::size_t kImagesMax = 150;
constexpr std::uint64_t kSeed = 73;

bool is_sync(const SimOperation& operation) {
  return operation.kind == SimOperationKind::kSync || operation.kind == SimOperationKind::kSyncDir;
}

std::size_t pending_when_cut_at(const Scenario& scenario, std::size_t index) {
  SimDisk disk;
  disk.crash_at(index);
  RunLife life(disk);
  std::ignore = scenario.run(life);
  return disk.pending_count();
}

// The invariant that breaks first if `sync` does nothing; empty if none does.
std::optional<std::string> caught_by(const Scenario& scenario, std::size_t sync,
                                     std::size_t operation_count) {
  for (std::size_t cut = sync + 1; cut <= operation_count; ++cut) {
    SimDisk disk;
    disk.ignore_sync(sync);
    disk.crash_at(cut);
    RunLife life(disk);
    std::ignore = scenario.run(life);
    for (const auto& image : disk.crash_images(kImagesMax, kSeed)) {
      if (auto broken = broken_invariant(*image, life.promises())) return broken;
    }
  }
  return {};
}

// The nonce of a temporary file differs from run to run.
std::string without_nonce(const std::string& name) {
  const std::size_t end = name.rfind(".tmp");
  const std::size_t begin = name.rfind('.', end - 1);
  if (end == name.npos || begin == name.npos) return name;
  return name.substr(0, begin) + ".<nonce>.tmp";
}

std::string describe(const RunLife& life, const SimOperation& operation) {
  return fmt::format("sync #{} {} \"{}\" ({})", operation.index, to_string(operation.kind),
                     without_nonce(operation.name), life.phase_at(operation.index));
}

struct Tally {
  std::size_t caught = 0;
  std::vector<std::string> idle;  // there was nothing to make durable
};

Tally leave_out_each_sync(const Scenario& scenario) {
  SimDisk disk;
  RunLife life(disk);
  EXPECT_TRUE(scenario.run(life).has_value());
  Tally tally;
  for (const SimOperation& operation : disk.operations()) {
    if (!is_sync(operation)) continue;
    const std::string text = describe(life, operation);
    const std::size_t index = operation.index;
    if (pending_when_cut_at(scenario, index) == pending_when_cut_at(scenario, index + 1)) {
      std::printf("%s: nothing was pending\n", text.c_str());
      tally.idle.push_back(text);
      continue;
    }
    const auto broken = caught_by(scenario, index, disk.operation_count());
    EXPECT_TRUE(broken.has_value()) << text << " can be left out and nothing breaks";
    std::printf("%s: %s\n", text.c_str(), broken ? ("caught by " + *broken).c_str() : "UNNOTICED");
    if (broken) ++tally.caught;
  }
  return tally;
}

using SyncMutation = EachScenario;
TEST_P(SyncMutation, NoSyncCanBeLeftOut) {
  const Tally tally = leave_out_each_sync(scenario());
  EXPECT_GT(tally.caught, 10U);
  // Only a collector syncs a record that is durable already, unless a process died before its sync.
  for (const std::string& idle : tally.idle) {
    EXPECT_TRUE(scenario().name != kDiedBeforeItsSync && idle.ends_with("(collect)")) << idle;
  }
}
INSTANTIATE_TEST_SUITE_P(Scenarios, SyncMutation,
                         testing::Range(std::size_t{0}, scenarios().size()), scenario_name);

}  // namespace
}  // namespace deepfreeze::sync_mutation_test

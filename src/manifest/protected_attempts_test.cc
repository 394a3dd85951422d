#include "manifest/protected_attempts.h"

#include <gtest/gtest.h>

#include "format/names.h"
#include "support/sim_disk.h"

namespace deepfreeze {
namespace {

AttemptState committed_at(std::uint64_t step) {
  AttemptState attempt{.name = {.step = step, .attempt_id = step}};
  attempt.manifest = Manifest{.point = {.generation = 1, .step = step, .save_index = step}};
  return attempt;
}

std::vector<std::uint64_t> protected_steps(SimDisk& disk, const RunListing& listing) {
  std::vector<std::uint64_t> steps;
  for (const AttemptName& name : protected_attempts(disk, listing)) steps.push_back(name.step);
  return steps;
}

TEST(ProtectedAttempts, AreTheNewestWithTheMarkAndThoseWithParityAfterIt) {
  SimDisk disk;
  RunListing listing;
  for (const std::uint64_t step : {3U, 1U, 2U, 5U, 4U, 6U}) {
    listing.attempts.push_back(committed_at(step));
    disk.plant(attempt_dir_name({step, step}) + "/manifest.json", "");
  }
  const auto expect = [&](const std::vector<std::uint64_t>& steps) {
    EXPECT_EQ(protected_steps(disk, listing), steps);
  };
  const auto plant = [&](std::uint64_t step, std::string_view name) {
    disk.plant(attempt_dir_name({step, step}) + "/" + std::string(name), "");
  };
  expect({});
  for (const std::uint64_t step : {1U, 2U, 3U, 5U}) plant(step, parity_file_name(0, 4));
  expect({5, 3, 2, 1});
  plant(4, kProtectedFile);  // without parity it means nothing
  plant(1, kProtectedFile);
  plant(2, kProtectedFile);
  expect({5, 3, 2});
  plant(5, kProtectedFile);
  expect({5});
  listing.attempts.push_back(committed_at(7));  // deleted meanwhile
  expect({5});
}

}  // namespace
}  // namespace deepfreeze

// The four strategies: a rank's actions in save(), and in front of an update.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ledger.h"
#include "pace.h"
#include "platform.h"
#include "scenario.h"

namespace deepfreeze::simulation {

class Protection;

// All of these outlive the simulation's run.
struct World {
  const Scenario& scenario;
  const Pace& pace;
  Platform& platform;
  Ledger& ledger;
  std::uint64_t state_bytes = 0;
  const Protection* protection = nullptr;  // null: nodes do not protect each other
};

// Both calls come from the rank's actor, and return when that may go on.
class Saver {
 public:
  virtual ~Saver() = default;
  virtual void save(std::uint64_t rank, std::uint64_t save) = 0;
  virtual void fence(std::uint64_t /*rank*/) {}
};

// rank0, all-write, asynchronous
[[nodiscard]] std::unique_ptr<Saver> make_baseline_saver(World& world);
[[nodiscard]] std::unique_ptr<Saver> make_deepfreeze_saver(World& world,
                                                           std::vector<std::uint64_t> shares);

}  // namespace deepfreeze::simulation

// Protects committed checkpoints by parity over the nodes (docs/decisions/0033):
//
// 1. Rank 0 tells all leaders to begin with the newest checkpoint.
// 2. Each reads the pieces of its group, one parity piece after the other, and stores it.
// 3. Its parity file is renamed and synced, and it tells rank 0: written.
// 4. If all have, rank 0 tells all, and each places its mark. Then the newest checkpoint is next.
#pragma once

#include <cstdint>
#include <optional>

#include "protection.h"
#include "saver.h"
#include "synchronization.h"

namespace deepfreeze::simulation {

class Protector {
 public:
  // Both outlive the simulation's run.
  Protector(World& world, const Protection& protection);

  // From an actor of rank 0, after a commit on the nodes. Takes no time.
  void committed(std::uint64_t save);

 private:
  void conduct();
  void lead(std::uint64_t node, std::uint64_t save);

  World& world_;
  const Protection& protection_;
  Semaphore written_;
  std::optional<std::uint64_t> next_;
  bool conducting_ = false;
};

}  // namespace deepfreeze::simulation

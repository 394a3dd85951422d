// Chooses, save by save, how the background copier competes with training.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "deepfreeze/options.h"
#include "staging/background_copier.h"

namespace deepfreeze {

// What the process did between two saves.
struct CoreUse {
  double wall_seconds = 0;
  double cpu_seconds = 0;  // of all threads, our own too
};

// Whether, on average, at least half a core was left.
[[nodiscard]] bool leaves_a_core(const CoreUse& use, std::size_t cores);

// For one thread: the caller of save().
class CopyProfile {
 public:
  CopyProfile(Profile wanted, std::size_t cores);

  // For the save that begins now. `had_to_wait`: the one before was not written yet, so an idle
  // copier is too slow for saves that come so often.
  [[nodiscard]] CopierPriority next(bool had_to_wait);

 private:
  const Profile wanted_;
  const std::size_t cores_;
  Monotonic::time_point looked_at_ = Monotonic::now();
  double cpu_seconds_;  // of the process, when we looked
  bool core_is_free_ = false;
  bool pace_is_high_ = false;  // once and for all: to try again would cost a wait each time
};

}  // namespace deepfreeze

// Chooses, save by save, when guarded tensors are copied.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "deepfreeze/options.h"

namespace deepfreeze {

// Behind training, by one thread beside it: least time blocked. At once, by all cores before save()
// returns: least total time if training keeps every core busy, because a copier beside it would
// take one core from a computation that waits for all.
enum class CopyTime : std::uint8_t { kBehind, kAtOnce };

// The process's use of its cores between two saves.
struct CoreUse {
  double wall_seconds = 0;
  double cpu_seconds = 0;  // of all threads, our own too
};

// Whether, on average, at least one core was left.
[[nodiscard]] bool leaves_a_core(const CoreUse& use, std::size_t cores);

// For one thread: the caller of save().
class CopyProfile {
 public:
  CopyProfile(Profile wanted, std::size_t cores);

  // For the save that begins now.
  [[nodiscard]] CopyTime next();

 private:
  const Profile wanted_;
  const std::size_t cores_;
  Monotonic::time_point looked_at_ = Monotonic::now();
  double cpu_seconds_;  // of the process, when we looked
  bool core_is_free_ = false;
};

}  // namespace deepfreeze

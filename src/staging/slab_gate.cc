#include "staging/slab_gate.h"

#include <numeric>

namespace deepfreeze {

SlabGate::SlabGate(std::uint64_t slots) : turn_(slots) {
  std::iota(turn_.begin(), turn_.end(), std::uint64_t{0});
}

bool SlabGate::wait(std::uint64_t slab) {
  if (turn_.empty()) return true;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return open_ || turn_[slab % turn_.size()] == slab; });
  return !open_;
}

void SlabGate::free(std::uint64_t slab) {
  if (turn_.empty()) return;
  const std::lock_guard lock(mutex_);
  turn_[slab % turn_.size()] = slab + turn_.size();
  changed_.notify_all();
}

void SlabGate::open_for_good() {
  const std::lock_guard lock(mutex_);
  open_ = true;
  changed_.notify_all();
}

}  // namespace deepfreeze

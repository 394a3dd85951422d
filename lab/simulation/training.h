// The ranks of a data-parallel training: an actor each.
#pragma once

#include <cstdint>
#include <vector>

#include "saver.h"
#include "synchronization.h"

namespace deepfreeze::simulation {

// Outlives the platform's run.
class Training {
 public:
  Training(World& world, Saver& saver);

  void start();
  [[nodiscard]] std::uint64_t ranks_done() const { return ranks_done_; }
  [[nodiscard]] double end_seconds() const { return end_seconds_; }

 private:
  void train(std::uint64_t rank);
  void begin_save(std::uint64_t rank, std::uint64_t save);
  void reduce_gradients(std::uint64_t rank, std::uint64_t step);
  void wait_in_fence(std::uint64_t rank, std::uint64_t save);

  World& world_;
  Saver& saver_;
  Barrier collective_;
  std::vector<double> arrivals_;  // by rank, at the collective of this step
  std::uint64_t arrived_ = 0;
  std::uint64_t ranks_done_ = 0;
  double end_seconds_ = 0;
};

}  // namespace deepfreeze::simulation

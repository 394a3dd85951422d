// How long ranks compute and talk when nobody saves. Pure: the same seed gives the same times.
#pragma once

#include <cstdint>
#include <vector>

#include "scenario.h"

namespace deepfreeze::simulation {

class Pace {
 public:
  explicit Pace(const Scenario& scenario);

  // Forward and backward of one rank in one step.
  [[nodiscard]] double window_seconds(std::uint64_t rank, std::uint64_t step) const;
  // That of the slowest rank: all wait for it in the collective.
  [[nodiscard]] double slowest_seconds(std::uint64_t step) const { return slowest_[step]; }
  // How much longer than the median rank's, at the worst of these steps.
  [[nodiscard]] double straggler_seconds(std::uint64_t first_step, std::uint64_t end) const;
  [[nodiscard]] double update_seconds() const { return update_seconds_; }
  // A ring that reduces the gradients, and two trees of messages.
  [[nodiscard]] double collective_seconds() const { return collective_seconds_; }
  // A gather to rank 0 and its answer, of a few bytes.
  [[nodiscard]] double agreement_seconds() const { return agreement_seconds_; }
  // All steps, without a save.
  [[nodiscard]] double training_seconds() const;

 private:
  double window_seconds_;
  double jitter_;
  std::uint64_t seed_;
  double update_seconds_;
  double agreement_seconds_;
  double collective_seconds_;
  std::vector<double> slowest_;     // by step
  std::vector<double> stragglers_;  // by step
};

}  // namespace deepfreeze::simulation

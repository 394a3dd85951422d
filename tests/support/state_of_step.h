// A state of which every byte follows from the step, for processes that have nothing else in
// common.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "deepfreeze/deepfreeze.h"

namespace deepfreeze {

struct Difference {
  bool refused = false;  // it could not be read: nothing was given out
  std::string what;      // empty: none
};

// The first step of which the next ones have the same tensors; see StateOfStep.
inline constexpr std::uint64_t kSteadyFrom = 8;

// Tensors whose number, sizes and every byte follow from the step. In 24 of 32 steps number and
// sizes are the same, and the first tensor changes once.
class StateOfStep {
 public:
  explicit StateOfStep(std::uint64_t step);
  [[nodiscard]] TensorTable table() const;
  [[nodiscard]] std::string objects() const;

  // The values of the checkpoint, read and verified, that differ from this state.
  [[nodiscard]] Difference difference(const OpenCheckpoint& checkpoint) const;

 private:
  std::uint64_t step_;
  std::vector<std::vector<std::uint64_t>> tensors_;
};

}  // namespace deepfreeze

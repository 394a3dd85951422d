// Lives that nobody thought of: saves, deaths, take-overs and collections in a random order.
#pragma once

#include <random>
#include <string>

#include "crash/run_life.h"

namespace deepfreeze {

// One process after the other works on a run; each may be killed at any operation. Only one
// thread: the same seed gives the same operations.
class RandomLife {
 public:
  RandomLife(SimDisk& disk, RunLife& life, std::mt19937_64& random)
      : disk_(disk), life_(life), random_(random) {}

  // Ends early if the power is off.
  void live(std::size_t actions);
  // The actions, in order.
  [[nodiscard]] const std::string& story() const { return story_; }

 private:
  [[nodiscard]] std::uint64_t below(std::uint64_t bound) { return random_() % bound; }
  [[nodiscard]] Status begin_process();
  [[nodiscard]] Status act();
  [[nodiscard]] Status save();
  [[nodiscard]] Status roll_back();
  [[nodiscard]] Status ruin();

  SimDisk& disk_;
  RunLife& life_;
  std::mt19937_64& random_;
  std::string story_;
  std::uint64_t step_ = 0;
};

}  // namespace deepfreeze

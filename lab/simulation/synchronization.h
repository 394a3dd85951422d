// Lets actors wait for each other: SimGrid's semaphore and barrier without its headers. Only within
// actors; these calls take no time in the simulation.
#pragma once

#include <cstdint>
#include <memory>

namespace deepfreeze::simulation {

// Counts events: acquire() takes one off, and waits if there is none.
class Semaphore {
 public:
  Semaphore();
  ~Semaphore();
  Semaphore(Semaphore&&) noexcept;
  Semaphore& operator=(Semaphore&&) noexcept;

  void release();
  void acquire();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

// All ranks go on when the last one has come.
class Barrier {
 public:
  explicit Barrier(std::uint64_t ranks);
  ~Barrier();
  Barrier(const Barrier&) = delete;
  Barrier& operator=(const Barrier&) = delete;

  void wait();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace deepfreeze::simulation

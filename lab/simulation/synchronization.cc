#include "synchronization.h"

#include <simgrid/s4u.hpp>

namespace deepfreeze::simulation {

struct Semaphore::Parts {
  simgrid::s4u::SemaphorePtr semaphore = simgrid::s4u::Semaphore::create(0);
};

Semaphore::Semaphore() : parts_(std::make_unique<Parts>()) {}
Semaphore::~Semaphore() = default;
Semaphore::Semaphore(Semaphore&&) noexcept = default;
Semaphore& Semaphore::operator=(Semaphore&&) noexcept = default;

void Semaphore::release() { parts_->semaphore->release(); }

void Semaphore::acquire() { parts_->semaphore->acquire(); }

struct Barrier::Parts {
  explicit Parts(std::uint64_t ranks)
      : barrier(simgrid::s4u::Barrier::create(static_cast<unsigned>(ranks))) {}
  simgrid::s4u::BarrierPtr barrier;
};

Barrier::Barrier(std::uint64_t ranks) : parts_(std::make_unique<Parts>(ranks)) {}
Barrier::~Barrier() = default;

void Barrier::wait() { parts_->barrier->wait(); }

}  // namespace deepfreeze::simulation

#include "training.h"

#include <algorithm>

namespace deepfreeze::simulation {

Training::Training(World& world, Saver& saver)
    : world_(world),
      saver_(saver),
      collective_(world.scenario.ranks()),
      arrivals_(world.scenario.ranks()) {}

void Training::start() {
  for (std::uint64_t rank = 0; rank < world_.scenario.ranks(); ++rank) {
    world_.platform.start("rank", rank, [this, rank] { train(rank); });
  }
}

void Training::train(std::uint64_t rank) {
  const std::uint64_t interval = world_.scenario.interval;
  for (std::uint64_t step = 0; step < world_.scenario.steps(); ++step) {
    if (step % interval == 0) begin_save(rank, step / interval);
    world_.platform.wait(world_.pace.window_seconds(rank, step));
    reduce_gradients(rank, step);
    wait_in_fence(rank, step / interval);
    world_.platform.wait(world_.pace.update_seconds());
  }
  ++ranks_done_;
  end_seconds_ = std::max(end_seconds_, world_.platform.now());
}

void Training::begin_save(std::uint64_t rank, std::uint64_t save) {
  const double start = world_.platform.now();
  world_.ledger.save_begins(save, start);
  saver_.save(rank, save);
  world_.ledger.blocked(save, rank, world_.platform.now() - start);
}

// Waiting for others counts as blocked if it takes longer than it would without a save.
void Training::reduce_gradients(std::uint64_t rank, std::uint64_t step) {
  const std::uint64_t save = step / world_.scenario.interval;
  arrivals_[rank] = world_.platform.now();
  if (++arrived_ == arrivals_.size()) {
    world_.ledger.collective(save, arrivals_);
    arrived_ = 0;
  }
  collective_.wait();
  const double waited = world_.platform.now() - arrivals_[rank];
  const double usual = world_.pace.slowest_seconds(step) - world_.pace.window_seconds(rank, step);
  world_.ledger.blocked(save, rank, std::max(0.0, waited - usual));
  world_.platform.wait(world_.pace.collective_seconds());
}

void Training::wait_in_fence(std::uint64_t rank, std::uint64_t save) {
  const double start = world_.platform.now();
  saver_.fence(rank);
  world_.ledger.blocked(save, rank, world_.platform.now() - start);
}

}  // namespace deepfreeze::simulation

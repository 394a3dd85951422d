// How far one save has come: written by the engine, waited for by anyone.
#pragma once

#include <condition_variable>
#include <mutex>

#include "base/clock.h"
#include "deepfreeze/checkpointer.h"

namespace deepfreeze {

struct SaveHandle::State {
  explicit State(std::uint64_t step) { status.step = step; }

  void reach(Level level);
  void fail(Error error);
  void update(std::uint64_t bytes_written);

  const Monotonic::time_point started = Monotonic::now();
  std::mutex mutex;  // guards `status`
  std::condition_variable changed;
  SaveStatus status;
};

}  // namespace deepfreeze

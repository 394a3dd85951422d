// One thread that checksums what it is offered. Owned by the adopted state, joined by the
// destructor.
#pragma once

#include <cstdint>
#include <memory>

#include "slab_checksums.h"

namespace deepfreeze {

// Idle: runs where no other thread wants the core (SCHED_IDLE).
enum class ThreadPriority : std::uint8_t { kNormal, kIdle };

class ChecksumThread {
 public:
  // Where no thread can be started it does nothing: whoever waits does the work.
  explicit ChecksumThread(ThreadPriority priority);
  ~ChecksumThread();
  ChecksumThread(const ChecksumThread&) = delete;
  ChecksumThread& operator=(const ChecksumThread&) = delete;

  // In place of what it was offered and has not begun. Never waits. Any thread.
  void offer(std::shared_ptr<SlabChecksums> checksums);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace deepfreeze

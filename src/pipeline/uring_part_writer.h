// A PartWriter over io_uring: push() submits a slab's write on the caller's thread, and one thread
// reaps.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>

#include "pipeline/part_files.h"
#include "storage/uring_queue.h"

namespace deepfreeze {

// A queue on loan to one writer at a time; the loan ends with the pointer.
struct GiveBackQueue {
  std::atomic<bool>* is_lent;
  void operator()(UringQueue* /*queue*/) const {
    is_lent->store(false, std::memory_order_release);  // for the acquire of the next loan
  }
};
using LentQueue = std::unique_ptr<UringQueue, GiveBackQueue>;

// `part` is direct and has a native_fd(). At most `in_flight_max` writes, the queue's depth.
[[nodiscard]] std::unique_ptr<PartWriter> make_uring_part_writer(std::unique_ptr<PartFiles> part,
                                                                 LentQueue queue,
                                                                 std::size_t in_flight_max);

}  // namespace deepfreeze

// Writes to files through io_uring, from registered memory if the kernel accepts it.
//
// Owns the ring and the registrations. submit() by one thread at a time and reap() by one at a
// time, which may be two different threads; everything else only while nothing is in flight. The
// caller of submit() keeps the bytes and the descriptor until reap() has returned the write: until
// then the kernel reads that memory, even if the process has moved on.
#pragma once

#include <liburing.h>
#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "deepfreeze/result.h"

namespace deepfreeze {

// The kernel refuses (EFAULT) a registered buffer that is larger.
inline constexpr std::size_t kRegisteredPieceBytesMax = 1ULL << 30;
inline constexpr unsigned kUringDepthMax = 64;

struct UringWrite {
  int fd = -1;
  std::uint64_t offset = 0;
  std::span<const std::byte> bytes;
  std::uint64_t tag = 0;  // comes back with the completion
};

struct UringDone {
  std::uint64_t tag = 0;
  int result = 0;  // bytes written, maybe fewer than wanted; or -errno
};

class UringQueue {
 public:
  // Makes room for `depth` writes. kUnsupported if the kernel or a sandbox lacks a required
  // operation.
  [[nodiscard]] static Result<std::unique_ptr<UringQueue>> open(unsigned depth);
  explicit UringQueue(const io_uring& ring);
  UringQueue(const UringQueue&) = delete;
  UringQueue& operator=(const UringQueue&) = delete;
  ~UringQueue();  // nothing may be in flight; in a forked child it changes nothing of the parent's

  // Replaces any earlier registration; on failure nothing is registered. The kernel keeps
  // references to these very pages: unregister before the memory is unmapped.
  [[nodiscard]] Status register_memory(std::span<std::byte> memory,
                                       std::size_t piece_bytes_max = kRegisteredPieceBytesMax);
  void unregister_memory();
  [[nodiscard]] std::size_t registered_bytes() const { return memory_.size(); }

  // At most `depth` writes may be in flight. After an error the queue is broken: it sends nothing
  // more, but writes in flight can still be reaped.
  [[nodiscard]] Status submit(const UringWrite& write);
  [[nodiscard]] bool is_broken() const { return broken_.load(std::memory_order_relaxed); }

  // Waits for a completion; only while something is in flight.
  [[nodiscard]] UringDone reap();

 private:
  [[nodiscard]] Status try_out();
  [[nodiscard]] Status send();
  [[nodiscard]] std::optional<int> piece_of(std::span<const std::byte> bytes) const;

  io_uring ring_;
  const pid_t owner_;
  std::span<std::byte> memory_;  // registered, in pieces of piece_bytes_
  std::size_t piece_bytes_ = 0;
  std::atomic<bool> broken_{false};  // relaxed: written by the submitting thread; others only ask
};

// `memory` in buffers that the kernel takes; the last may be shorter.
[[nodiscard]] std::vector<iovec> split_for_registration(std::span<std::byte> memory,
                                                        std::size_t piece_bytes_max);

}  // namespace deepfreeze

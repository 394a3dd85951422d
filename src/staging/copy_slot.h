// The piece that the background copier is copying right now, so that a waiter can take it over.
//
// A thread may lose its core in the middle of a copy, for as long as others want it. A thread that
// waits for the source then copies that piece itself, into a spare buffer, and goes on; the copier,
// whenever it runs again, throws away the bytes it read and takes the spare ones.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "staging/piece_copy.h"

namespace deepfreeze {

class CopySlot {
 public:
  explicit CopySlot(std::size_t bytes_max) : spare_(bytes_max) {}

  // If a waiter took over, it counts the source as read, and `source` may have changed before
  // copy() returned. `into` holds the bytes from before such a change either way.
  struct Copied {
    bool was_taken_over = false;
    PieceCopy piece;  // its checksum is that of `into`, if it is known
  };
  // For the one copier.
  [[nodiscard]] Copied copy(std::span<const std::byte> source, const PiecePlace& into,
                            std::size_t item);

  // For a waiter: returns the item of the piece that it took over; empty if nothing is being
  // copied, or if another waiter was first.
  [[nodiscard]] std::optional<std::size_t> take_over();

 private:
  enum class Phase : std::uint8_t { kIdle, kCopying, kTakingOver, kTakenOver };

  std::atomic<Phase> phase_{Phase::kIdle};
  // Written by the copier while idle, read by the waiter while taking over.
  std::span<const std::byte> source_;
  std::size_t item_ = 0;
  // Written by the waiter while taking over, read by the copier when it was taken over.
  std::vector<std::byte> spare_;
};

}  // namespace deepfreeze

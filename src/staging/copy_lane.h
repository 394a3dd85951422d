// One queue of copy work: some items, cut at the image's blocks, dealt out in file order.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "arena/capture_item.h"

namespace deepfreeze {

// Half-open range of pieces, numbered within their lane.
struct PieceRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

// How many pieces a lane of these members has.
[[nodiscard]] std::uint64_t piece_count(std::span<const CaptureItem> items,
                                        std::span<const std::size_t> members,
                                        std::uint64_t block_bytes);

class CopyLane {
 public:
  // `members` are indices into `items`, by offset; `items` must outlive the lane, and only its
  // sources may change.
  CopyLane(std::span<const CaptureItem> items, std::vector<std::size_t> members,
           std::uint64_t block_bytes);

  // The next pieces, `count` at most; empty when all are claimed. Any thread.
  [[nodiscard]] std::optional<PieceRange> claim(std::uint64_t count);

  [[nodiscard]] std::uint64_t piece_count() const { return piece_count_; }
  [[nodiscard]] CapturePiece piece(std::uint64_t number) const;

 private:
  std::span<const CaptureItem> items_;
  std::vector<std::size_t> members_;
  std::vector<std::uint64_t> first_piece_;  // by member
  std::uint64_t block_bytes_;
  std::uint64_t piece_count_ = 0;
  std::atomic<std::uint64_t> next_{0};
};

}  // namespace deepfreeze

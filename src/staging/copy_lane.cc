#include "staging/copy_lane.h"

#include <algorithm>
#include <utility>

namespace deepfreeze {
namespace {

std::uint64_t blocks_touched(const CaptureItem& item, std::uint64_t block_bytes) {
  if (item.source.empty()) return 0;
  const std::uint64_t last = item.offset + item.source.size() - 1;
  return last / block_bytes - item.offset / block_bytes + 1;
}

}  // namespace

std::uint64_t piece_count(std::span<const CaptureItem> items, std::span<const std::size_t> members,
                          std::uint64_t block_bytes) {
  std::uint64_t count = 0;
  for (const std::size_t member : members) count += blocks_touched(items[member], block_bytes);
  return count;
}

CopyLane::CopyLane(std::span<const CaptureItem> items, std::vector<std::size_t> members,
                   std::uint64_t block_bytes)
    : items_(items), members_(std::move(members)), block_bytes_(block_bytes) {
  first_piece_.reserve(members_.size());
  for (const std::size_t member : members_) {
    first_piece_.push_back(piece_count_);
    piece_count_ += blocks_touched(items_[member], block_bytes_);
  }
}

std::optional<PieceRange> CopyLane::claim(std::uint64_t count) {
  // relaxed: it only deals out numbers, and the pieces behind them are constant.
  const std::uint64_t begin = next_.fetch_add(count, std::memory_order_relaxed);
  if (begin >= piece_count_) return std::nullopt;
  return PieceRange{begin, std::min(begin + count, piece_count_)};
}

CapturePiece CopyLane::piece(std::uint64_t number) const {
  // The last member that begins here or before: members without pieces come earlier.
  const auto after = std::ranges::upper_bound(first_piece_, number);
  const auto member = static_cast<std::size_t>(after - first_piece_.begin()) - 1;
  const CaptureItem& item = items_[members_[member]];
  const std::uint64_t block = item.offset / block_bytes_ + number - first_piece_[member];
  const std::uint64_t begin = std::max(item.offset, block * block_bytes_);
  const std::uint64_t end = std::min(item.offset + item.source.size(), (block + 1) * block_bytes_);
  return {.item = members_[member], .offset = begin, .bytes = end - begin};
}

}  // namespace deepfreeze

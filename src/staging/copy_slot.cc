#include "staging/copy_slot.h"

#include <cstring>

#include "base/thread_sanitizer.h"

namespace deepfreeze {
namespace {

// Once a piece was taken over its source may change under this copy, whose result nobody uses.
#if DF_THREAD_SANITIZER
__attribute__((no_sanitize("thread"), noinline)) PieceCopy
copy_racing(std::span<const std::byte> source, const PiecePlace& into) {
  // memcmp and memcpy are watched, too.
  bool is_equal = into.old_block_crc.has_value();
  for (std::size_t i = 0; i < source.size(); ++i) {
    is_equal = is_equal && into.bytes[i] == source[i];
    into.bytes[i] = source[i];
  }
  return {.crc = std::nullopt, .has_changed = !is_equal};
}
#else
PieceCopy copy_racing(std::span<const std::byte> source, const PiecePlace& into) {
  return copy_piece_bytes(source, into);
}
#endif

}  // namespace

CopySlot::Copied CopySlot::copy(std::span<const std::byte> source, const PiecePlace& into,
                                std::size_t item) {
  source_ = source;
  item_ = item;
  phase_.store(Phase::kCopying, std::memory_order_release);  // shows the two above
  const PieceCopy piece = copy_racing(source, into);
  Phase expected = Phase::kCopying;
  // release: a thread that sees this piece as read may overwrite its source.
  if (phase_.compare_exchange_strong(expected, Phase::kIdle, std::memory_order_acq_rel)) {
    return {.was_taken_over = false, .piece = piece};
  }
  phase_.wait(Phase::kTakingOver, std::memory_order_acquire);  // pairs with take_over()'s release
  // If the racing copy stored nothing, the place still holds the earlier copy.
  const auto spare = std::span<const std::byte>(spare_).first(source.size());
  const bool is_equal =
      !piece.has_changed && std::memcmp(into.bytes.data(), spare.data(), spare.size()) == 0;
  std::memcpy(into.bytes.data(), spare.data(), spare.size());
  phase_.store(Phase::kIdle, std::memory_order_release);
  // The checksum of the spare bytes nobody knows.
  return {.was_taken_over = true, .piece = {.crc = std::nullopt, .has_changed = !is_equal}};
}

std::optional<std::size_t> CopySlot::take_over() {
  Phase expected = Phase::kCopying;
  // acquire: pairs with the copier's release, so source and item are those of this piece.
  if (!phase_.compare_exchange_strong(expected, Phase::kTakingOver, std::memory_order_acq_rel)) {
    return std::nullopt;
  }
  const std::size_t item = item_;
  std::memcpy(spare_.data(), source_.data(), source_.size());
  phase_.store(Phase::kTakenOver, std::memory_order_release);
  phase_.notify_one();
  return item;
}

}  // namespace deepfreeze

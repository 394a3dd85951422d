#include "staging/copy_slot.h"

#include <cstring>

#include "base/thread_sanitizer.h"

namespace deepfreeze {
namespace {

// Once a piece was taken over its source may change under this copy, whose result nobody uses.
#if DF_THREAD_SANITIZER
__attribute__((no_sanitize("thread"), noinline)) BlockCrc
copy_racing(std::span<const std::byte> source, std::span<std::byte> into, bool /*is_block*/) {
  for (std::size_t i = 0; i < source.size(); ++i) into[i] = source[i];  // memcpy is watched too
  return std::nullopt;
}
#else
BlockCrc copy_racing(std::span<const std::byte> source, std::span<std::byte> into, bool is_block) {
  return copy_piece_bytes(source, into, is_block);
}
#endif

}  // namespace

CopySlot::Copied CopySlot::copy(std::span<const std::byte> source, std::span<std::byte> into,
                                std::size_t item, bool is_block) {
  source_ = source;
  item_ = item;
  phase_.store(Phase::kCopying, std::memory_order_release);  // shows the two above
  const BlockCrc crc = copy_racing(source, into, is_block);
  Phase expected = Phase::kCopying;
  // release: a thread that sees this piece as read may overwrite its source.
  if (phase_.compare_exchange_strong(expected, Phase::kIdle, std::memory_order_acq_rel)) {
    return {.was_taken_over = false, .crc = crc};
  }
  phase_.wait(Phase::kTakingOver, std::memory_order_acquire);  // pairs with take_over()'s release
  std::memcpy(into.data(), spare_.data(), source.size());
  phase_.store(Phase::kIdle, std::memory_order_release);
  return {.was_taken_over = true, .crc = std::nullopt};  // that of the spare bytes nobody knows
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

#include "staging/copy_slot.h"

#include <cstring>

namespace deepfreeze {
namespace {

#if defined(__SANITIZE_THREAD__)
#define DF_RACES_ON_PURPOSE __attribute__((no_sanitize("thread"), noinline))
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define DF_RACES_ON_PURPOSE __attribute__((no_sanitize("thread"), noinline))
#endif
#endif

// Once a piece was taken over its source may change under this copy, whose result nobody uses.
#ifdef DF_RACES_ON_PURPOSE
DF_RACES_ON_PURPOSE void copy_bytes(std::span<const std::byte> source, std::span<std::byte> into) {
  for (std::size_t i = 0; i < source.size(); ++i) into[i] = source[i];  // memcpy is watched too
}
#else
void copy_bytes(std::span<const std::byte> source, std::span<std::byte> into) {
  std::memcpy(into.data(), source.data(), source.size());
}
#endif

}  // namespace

bool CopySlot::copy(std::span<const std::byte> source, std::span<std::byte> into,
                    std::size_t item) {
  source_ = source;
  item_ = item;
  phase_.store(Phase::kCopying, std::memory_order_release);  // shows the two above
  copy_bytes(source, into);
  Phase expected = Phase::kCopying;
  // release: whoever sees this piece as read may overwrite its source.
  if (phase_.compare_exchange_strong(expected, Phase::kIdle, std::memory_order_acq_rel)) {
    return true;
  }
  phase_.wait(Phase::kTakingOver, std::memory_order_acquire);  // pairs with take_over()'s release
  std::memcpy(into.data(), spare_.data(), source.size());
  phase_.store(Phase::kIdle, std::memory_order_release);
  return false;
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

#include "arena/arena.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <limits>

#include "base/checked_math.h"
#include "base/log.h"
#include "base/try.h"

namespace deepfreeze {
namespace {

constexpr std::size_t kTouchBytes = 4096;  // the smallest page there is
// One huge page: the kernel holds the lock of the process's address space for a whole call, and
// mmap() in other threads waits for that.
constexpr std::size_t kTouchAtOnce = 2 * 1024 * 1024;

void touch_each_page(std::span<std::byte> memory) {
  for (std::size_t at = 0; at < memory.size(); at += kTouchBytes) {
    // Atomic, so that no compiler drops a store of what is there already.
    std::atomic_ref(memory[at]).store(std::byte{0}, std::memory_order_relaxed);
  }
}

// The kernel does it in one call since 5.14, and there refuses instead of killing.
Status populate(std::span<std::byte> memory) {
  int failed = 0;
  do {
    failed = ::madvise(memory.data(), memory.size(), MADV_POPULATE_WRITE);
  } while (failed != 0 && errno == EINTR);
  if (failed == 0) return {};
  if (errno == EINVAL) {
    touch_each_page(memory);
    return {};
  }
  const int cause = errno;
  return fail(ErrorCode::kNoSpace,
              fmt::format("take {} bytes of memory: {}", memory.size(), std::strerror(cause)),
              cause);
}

}  // namespace

Status Arena::reserve(std::size_t bytes, const std::stop_token& stop) {
  if (bytes <= touched_) return {};
  if (bytes > std::numeric_limits<std::size_t>::max() - kArenaGrainBytes) {
    return fail(ErrorCode::kNoSpace, fmt::format("take {} bytes of memory: too many", bytes));
  }
  const std::size_t size = round_up(bytes, kArenaGrainBytes);
  Status taken = map(size);
  while (taken && touched_ < size && !stop.stop_requested()) {
    const std::size_t more = std::min(kTouchAtOnce, size - touched_);
    taken = touch(mapped().subspan(touched_, more));
    if (taken) touched_ += more;
  }
  if (taken) return {};
  const bool was_shared = kind_ == Kind::kShared;
  *this = Arena(kind_);
  if (!was_shared || stop.stop_possible()) return taken;
  // A container may forbid it, or count it otherwise.
  log_warning("no other process can finish a save of this one: " + taken.error().message());
  *this = Arena(Kind::kOwn);
  return reserve(bytes);
}

// Memory of the process keeps the pages that are touched. Shared memory is of one size for good,
// and goes first, so that old and new never stand side by side.
Status Arena::map(std::size_t bytes) {
  if (bytes <= mapped().size()) return {};
  if (kind_ == Kind::kOwn && memory_.grow(bytes)) return {};
  touched_ = 0;
  memory_ = MappedMemory();  // growing needs addresses for both
  shared_ = SharedMemory();
  if (kind_ == Kind::kOwn) return memory_.grow(bytes);
  DF_TRY(shared_, SharedMemory::allocate(bytes));
  return {};
}

Status Arena::touch(std::span<std::byte> part) {
  return kind_ == Kind::kShared ? shared_.populate(part) : populate(part);
}

}  // namespace deepfreeze

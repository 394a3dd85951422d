#include "arena/arena.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "base/checked_math.h"
#include "base/log.h"
#include "base/try.h"

namespace deepfreeze {
namespace {

constexpr std::size_t kTouchBytes = 4096;  // the smallest page there is

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

Status Arena::reserve(std::size_t bytes) {
  if (bytes <= this->bytes().size()) return {};
  if (bytes > std::numeric_limits<std::size_t>::max() - kArenaGrainBytes) {
    return fail(ErrorCode::kNoSpace, fmt::format("take {} bytes of memory: too many", bytes));
  }
  memory_ = MappedMemory();  // first, so that old and new never stand side by side
  shared_ = SharedMemory();
  if (kind_ == Kind::kShared && reserve_shared(round_up(bytes, kArenaGrainBytes))) return {};
  DF_TRY(MappedMemory grown, MappedMemory::allocate(round_up(bytes, kArenaGrainBytes)));
  DF_TRY_VOID(populate(grown.bytes()));
  memory_ = std::move(grown);
  return {};
}

// A container may forbid it, or count it otherwise.
bool Arena::reserve_shared(std::size_t bytes) {
  auto grown = SharedMemory::allocate(bytes);
  const Status taken = grown ? grown->populate() : std::unexpected(grown.error());
  if (taken) {
    shared_ = *std::move(grown);
    return true;
  }
  kind_ = Kind::kOwn;
  log_warning("no other process can finish a save of this one: " + taken.error().message());
  return false;
}

}  // namespace deepfreeze

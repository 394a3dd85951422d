#include "base/mapped_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <limits>
#include <string>

#include "base/checked_math.h"
#include "base/try.h"

namespace deepfreeze {
namespace {

constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kHugePageBytes = 2 * 1024 * 1024;

std::unexpected<Error> refused(std::size_t bytes, int cause) {
  return fail(ErrorCode::kNoSpace,
              "map " + std::to_string(bytes) + " bytes of memory: " + std::strerror(cause), cause);
}

// Both are advice: a kernel without huge pages, or without the flag, changes nothing here.
void advise(std::span<std::byte> memory) {
  ::madvise(memory.data(), memory.size(), MADV_HUGEPAGE);
  ::madvise(memory.data(), memory.size(), MADV_DONTFORK);
}

// Maps `bytes` from the beginning of a huge page on: old kernels choose other addresses, and pages
// that move to those are split. Null with errno set, and nothing is mapped.
std::byte* map_aligned(std::size_t bytes, int protection, int flags) {
  const std::size_t room = bytes + kHugePageBytes;
  void* place = ::mmap(nullptr, room, protection, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  if (place == MAP_FAILED) return nullptr;
  auto* begin = static_cast<std::byte*>(place);
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  const std::size_t before = round_up(address, kHugePageBytes) - address;
  if (before > 0) ::munmap(begin, before);
  if (before < kHugePageBytes) ::munmap(begin + before + bytes, kHugePageBytes - before);
  return begin + before;
}

}  // namespace

Result<MappedMemory> MappedMemory::allocate(std::size_t bytes) {
  MappedMemory memory;
  if (bytes == 0) return memory;
  void* address =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) return refused(bytes, errno);
  memory.bytes_ = {static_cast<std::byte*>(address), bytes};
  advise(memory.bytes_);
  return memory;
}

Status MappedMemory::grow(std::size_t bytes) {
  if (bytes <= bytes_.size()) return {};
  if (bytes > std::numeric_limits<std::size_t>::max() - 2 * kHugePageBytes) {
    return refused(bytes, ENOMEM);
  }
  const std::size_t size = round_up(bytes, kPageBytes);
  const std::size_t before = round_up(bytes_.size(), kPageBytes);
  // Memory for the rest is asked for first, to hear of a refusal while nothing has moved.
  if (before > 0) DF_TRY_VOID(allocate(size - before));
  std::byte* place = before == 0 ? map_aligned(size, PROT_READ | PROT_WRITE, 0)
                                 : map_aligned(size, PROT_NONE, MAP_NORESERVE);
  if (place == nullptr) return refused(bytes, errno);
  // A place that was refused now is not unmapped: others may have it by then. It has no memory.
  if (before > 0 &&
      ::mremap(bytes_.data(), before, size, MREMAP_MAYMOVE | MREMAP_FIXED, place) == MAP_FAILED) {
    return refused(bytes, errno);
  }
  bytes_ = {place, bytes};
  advise(bytes_);
  return {};
}

// The kernel unmaps whole pages. ThreadSanitizer has to be told of them, too: else it remembers the
// accesses to part of a page, and takes them for a race once others get this address.
MappedMemory::~MappedMemory() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), round_up(bytes_.size(), kPageBytes));
}

}  // namespace deepfreeze

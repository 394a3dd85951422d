#include "base/mapped_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
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

// Addresses for `bytes` that nothing else gets, from the beginning of a huge page on: old kernels
// choose others, and pages that move to those are split. Null with errno set.
std::byte* aligned_place(std::size_t bytes) {
  const std::size_t room = bytes + kHugePageBytes;
  void* place =
      ::mmap(nullptr, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (place == MAP_FAILED) return nullptr;
  auto* begin = static_cast<std::byte*>(place);
  const std::size_t before = round_up(reinterpret_cast<std::uintptr_t>(begin), kHugePageBytes) -
                             reinterpret_cast<std::uintptr_t>(begin);
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
  const std::size_t size = round_up(bytes, kPageBytes);
  std::byte* place = aligned_place(size);
  if (place == nullptr) return refused(bytes, errno);
  void* grown = bytes_.empty() ? ::mmap(place, size, PROT_READ | PROT_WRITE,
                                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0)
                               : ::mremap(bytes_.data(), round_up(bytes_.size(), kPageBytes), size,
                                          MREMAP_MAYMOVE | MREMAP_FIXED, place);
  // The place is not unmapped here: the kernel may have done that, and others may have it by now.
  if (grown == MAP_FAILED) return refused(bytes, errno);
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

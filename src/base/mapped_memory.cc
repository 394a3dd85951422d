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

}  // namespace

Result<MappedMemory> MappedMemory::allocate(std::size_t bytes) {
  MappedMemory memory;
  if (bytes == 0) return memory;
  void* address =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) {
    const int cause = errno;
    return fail(ErrorCode::kNoSpace,
                "map " + std::to_string(bytes) + " bytes of memory: " + std::strerror(cause),
                cause);
  }
  memory.bytes_ = {static_cast<std::byte*>(address), bytes};
  // Both are advice: a kernel without huge pages, or without the flag, changes nothing here.
  ::madvise(address, bytes, MADV_HUGEPAGE);
  ::madvise(address, bytes, MADV_DONTFORK);
  return memory;
}

// The kernel unmaps whole pages. ThreadSanitizer has to be told of them, too: else it remembers the
// accesses to part of a page, and takes them for a race once others get this address.
MappedMemory::~MappedMemory() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), round_up(bytes_.size(), kPageBytes));
}

}  // namespace deepfreeze

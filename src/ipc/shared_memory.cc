#include "ipc/shared_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/checked_math.h"
#include "base/try.h"
#include "ipc/memory_file.h"

#ifndef MADV_COLLAPSE  // Linux 6.1, newer than the C library here
#define MADV_COLLAPSE 25
#endif

namespace deepfreeze {
namespace {

constexpr std::size_t kHugePage = 2 * 1024 * 1024;
constexpr std::size_t kPage = 4096;
constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;

std::unexpected<Error> no_space(std::size_t bytes, int cause) {
  return fail(ErrorCode::kNoSpace,
              fmt::format("take {} bytes of shared memory: {}", bytes, std::strerror(cause)),
              cause);
}

// errno, or 0.
int advise(std::span<std::byte> memory, int advice) {
  while (::madvise(memory.data(), memory.size(), advice) != 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

// This call makes huge pages even if the system's setting for shared memory is never; it needs one
// page of each to be there.
bool take_huge_pages(std::span<std::byte> memory) {
  const auto whole = memory.first(memory.size() / kHugePage * kHugePage);
  for (std::size_t at = 0; at < whole.size(); at += kHugePage) {
    if (advise(whole.subspan(at, kPage), MADV_POPULATE_WRITE) != 0) return false;
  }
  return !whole.empty() && advise(whole, MADV_COLLAPSE) == 0;
}

}  // namespace

Result<SharedMemory> SharedMemory::allocate(std::size_t bytes) {
  SharedMemory memory;
  memory.file_ = UniqueFd(make_memory_fd(MFD_ALLOW_SEALING));
  if (!memory.file_.valid()) return no_space(bytes, errno);
  if (bytes > std::size_t{INT64_MAX}) return no_space(bytes, EFBIG);
  if (::ftruncate(memory.fd(), static_cast<off_t>(bytes)) != 0) return no_space(bytes, errno);
  if (::fcntl(memory.fd(), F_ADD_SEALS, kSizeSeals | F_SEAL_SEAL) != 0) {
    return no_space(bytes, errno);
  }
  DF_TRY_VOID(memory.map_all(bytes));
  return memory;
}

Result<SharedMemory> SharedMemory::map(UniqueFd file) {
  struct stat found = {};
  const int seals = ::fcntl(file.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSizeSeals) != kSizeSeals || ::fstat(file.get(), &found) != 0) {
    return fail(ErrorCode::kInvalidArgument, "map shared memory: its size is not sealed");
  }
  SharedMemory memory;
  memory.file_ = std::move(file);
  DF_TRY_VOID(memory.map_all(static_cast<std::size_t>(found.st_size)));
  return memory;
}

// At a multiple of the size of a huge page: else no page of it can be one.
Status SharedMemory::map_all(std::size_t bytes) {
  if (bytes == 0) return {};
  const std::size_t room = round_up(bytes, kPage) + kHugePage;
  void* place =
      ::mmap(nullptr, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (place == MAP_FAILED) return no_space(bytes, errno);
  auto* begin = static_cast<std::byte*>(place);
  std::byte* aligned =
      begin + (kHugePage - reinterpret_cast<std::uintptr_t>(begin) % kHugePage) % kHugePage;
  void* mapped = ::mmap(aligned, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd(), 0);
  const int cause = errno;
  std::byte* end = aligned + round_up(bytes, kPage);
  if (mapped == MAP_FAILED) {
    ::munmap(place, room);
    return no_space(bytes, cause);
  }
  if (aligned > begin) ::munmap(begin, static_cast<std::size_t>(aligned - begin));
  if (end < begin + room) ::munmap(end, static_cast<std::size_t>(begin + room - end));
  bytes_ = {aligned, bytes};
  ::madvise(aligned, bytes, MADV_DONTFORK);  // advice: a kernel without it changes nothing here
  return {};
}

Status SharedMemory::populate(std::span<std::byte> part) {
  if (part.empty()) return {};
  std::ignore = take_huge_pages(part);
  const int failed = advise(part, MADV_POPULATE_WRITE);
  if (failed == 0) return {};
  // Before Linux 5.14: reserve the pages, so that no access can lack one.
  const auto begin = static_cast<off_t>(part.data() - bytes_.data());
  if (failed == EINVAL && ::posix_fallocate(fd(), begin, static_cast<off_t>(part.size())) == 0) {
    return {};
  }
  return no_space(part.size(), failed);
}

Status SharedMemory::keep_secret() {
  if (bytes_.empty()) return {};
  if (::mlock(bytes_.data(), bytes_.size()) != 0) {
    const int cause = errno;
    return fail(ErrorCode::kNoSpace,
                fmt::format("lock {} bytes of memory: {}", bytes_.size(), std::strerror(cause)),
                cause);
  }
  const int failed = advise(bytes_, MADV_DONTDUMP);
  if (failed == 0) return {};
  return fail(ErrorCode::kUnsupported,
              fmt::format("keep memory out of core files: {}", std::strerror(failed)), failed);
}

SharedMemory::~SharedMemory() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), round_up(bytes_.size(), kPage));
}

}  // namespace deepfreeze

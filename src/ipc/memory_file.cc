#include "ipc/memory_file.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/try.h"

namespace deepfreeze {
namespace {

constexpr std::uint64_t kReadBytesMax = std::uint64_t{4} << 30;

std::unexpected<Error> refused(int cause) {
  return fail(ErrorCode::kNoSpace,
              fmt::format("take memory that another process can read: {}", std::strerror(cause)),
              cause);
}

}  // namespace

UniqueFd make_memory_fd(unsigned int flags) {
  constexpr unsigned int kNoExec = 8;  // MFD_NOEXEC_SEAL, Linux 6.3
  constexpr const char* kName = "deepfreeze";
  const int file = ::memfd_create(kName, flags | MFD_CLOEXEC | kNoExec);
  if (file >= 0 || errno != EINVAL) return UniqueFd(file);
  return UniqueFd(::memfd_create(kName, flags | MFD_CLOEXEC));
}

Result<std::unique_ptr<MemoryFile>> MemoryFile::make() {
  UniqueFd file(make_memory_fd(0));
  // Written, not only sized: the page is there, and no access to it can fail later.
  const std::array<std::byte, kMemoryPageBytes> zeros{};
  if (!file.valid() ||
      ::pwrite(file.get(), zeros.data(), zeros.size(), 0) != static_cast<ssize_t>(zeros.size())) {
    return refused(errno);
  }
  void* page = ::mmap(nullptr, kMemoryPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (page == MAP_FAILED) return refused(errno);
  ::madvise(page, kMemoryPageBytes, MADV_DONTFORK);  // advice
  return std::make_unique<MemoryFile>(std::move(file), page);
}

MemoryFile::~MemoryFile() { ::munmap(page_, kMemoryPageBytes); }

Status MemoryFile::write_at(std::uint64_t at, std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(fd(), bytes.data(), bytes.size(), static_cast<off_t>(at));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return refused(errno);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    at += static_cast<std::uint64_t>(count);
  }
  return {};
}

Result<std::vector<std::byte>> read_memory_file(int fd, std::uint64_t at, std::uint64_t size) {
  const auto corrupt = [] {
    return fail(ErrorCode::kCorrupt, "read the memory of another process: it ends early");
  };
  if (size > kReadBytesMax) return corrupt();
  std::vector<std::byte> bytes(size);
  for (std::size_t done = 0; done < size;) {
    const ssize_t count =
        ::pread(fd, bytes.data() + done, size - done, static_cast<off_t>(at + done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return corrupt();
    done += static_cast<std::size_t>(count);
  }
  return bytes;
}

}  // namespace deepfreeze

#include "attacks/odd_file.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

#include "base/unique_fd.h"

namespace deepfreeze {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kMode = 0644;

// A socket's path must be short, so it is bound by name from within its directory.
bool make_socket(const fs::path& path) {
  const UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const fs::path before = fs::current_path();
  fs::current_path(path.parent_path());
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string leaf = path.filename();
  std::memcpy(static_cast<char*>(address.sun_path), leaf.data(), leaf.size());
  const auto* const any = reinterpret_cast<const sockaddr*>(&address);
  const bool bound = ::bind(fd.get(), any, sizeof(address)) == 0;
  fs::current_path(before);
  return bound;
}

bool make(OddFile kind, const fs::path& path, const fs::path& outside) {
  constexpr unsigned kMemoryDevices = 1;
  constexpr unsigned kZero = 5;
  switch (kind) {
    case OddFile::kLinkToAFile:
      return ::symlink((outside / path.filename()).c_str(), path.c_str()) == 0;
    case OddFile::kLinkToADirectory:
      return ::symlink(outside.c_str(), path.c_str()) == 0;
    case OddFile::kLinkToNothing:
      return ::symlink("nowhere", path.c_str()) == 0;
    case OddFile::kDirectory:
      return fs::create_directory(path);
    case OddFile::kFifo:
      return ::mkfifo(path.c_str(), kMode) == 0;
    case OddFile::kSocket:
      return make_socket(path);
    case OddFile::kDevice:
      return ::mknod(path.c_str(), S_IFCHR | kMode, makedev(kMemoryDevices, kZero)) == 0;
  }
  return false;
}

}  // namespace

const std::vector<OddFileCase>& odd_files() {
  static const std::vector<OddFileCase> cases = {
      {OddFile::kLinkToAFile, "LinkToAFile", "Too many levels of symbolic links"},
      {OddFile::kLinkToADirectory, "LinkToADirectory", "Too many levels of symbolic links"},
      {OddFile::kLinkToNothing, "LinkToNothing", "Too many levels of symbolic links"},
      {OddFile::kDirectory, "Directory", "Is a directory"},
      {OddFile::kFifo, "Fifo", "not a regular file"},
      {OddFile::kSocket, "Socket", "No such device or address"},
      {OddFile::kDevice, "Device", "not a regular file"}};
  return cases;
}

bool replace_by(OddFile kind, const fs::path& path, const fs::path& outside) {
  const fs::path moved = outside / path.filename();
  fs::rename(path, moved);
  if (make(kind, path, outside)) return true;
  fs::rename(moved, path);
  return false;
}

}  // namespace deepfreeze

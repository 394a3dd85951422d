#include "storage/sync_directory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "storage/os_error.h"

namespace deepfreeze {

// fsync, not fdatasync: a directory's entries are metadata to some file systems. XFS that has shut
// itself down calls it a success, with the entries lost (Linux 6.18); a look at the status, which
// costs a local file system no I/O, is refused then.
Status sync_directory(int fd, std::string_view path) {
  struct stat status{};
  if (::fsync(fd) == 0 && ::fstat(fd, &status) == 0) return {};
  return os_fail("sync directory", path, errno);
}

}  // namespace deepfreeze

#include "storage/beneath.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>

namespace deepfreeze {
namespace {

// openat2 is the only way to ask the kernel for the whole path; glibc has no wrapper.
UniqueFd open_resolved(int root_fd, const char* path, int flags, mode_t mode) {
  open_how how = {};
  how.flags = static_cast<decltype(how.flags)>(flags);
  how.mode = (flags & O_CREAT) != 0 ? mode : 0;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  return UniqueFd(static_cast<int>(::syscall(SYS_openat2, root_fd, path, &how, sizeof(how))));
}

// For kernels before 5.6 and sandboxes that forbid openat2. The names hold no "..", so that
// O_NOFOLLOW at each component is enough.
UniqueFd open_by_components(const BeneathOpen& open, const char* path) {
  UniqueFd directory;
  std::string_view rest = path;
  int at = open.root_fd;
  for (auto slash = rest.find('/'); slash != rest.npos; slash = rest.find('/')) {
    const std::string component(rest.substr(0, slash));
    UniqueFd next(::openat(at, component.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!next.valid()) return next;
    directory = std::move(next);
    at = directory.get();
    rest.remove_prefix(slash + 1);
  }
  return UniqueFd(
      ::openat(at, std::string(rest).c_str(), open.flags | O_NOFOLLOW | O_CLOEXEC, open.mode));
}

}  // namespace

UniqueFd open_beneath(const BeneathOpen& open) {
  const char* path = open.name.empty() ? "." : open.name.c_str();
  UniqueFd fd = open_resolved(open.root_fd, path, open.flags | O_CLOEXEC, open.mode);
  // Seccomp profiles answer EPERM; if it is a genuine one, the second attempt fails with it again.
  if (fd.valid() || (errno != ENOSYS && errno != EPERM)) return fd;
  return open_by_components(open, path);
}

}  // namespace deepfreeze

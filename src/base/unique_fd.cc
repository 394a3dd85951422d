#include "base/unique_fd.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/try.h"

namespace deepfreeze {

UniqueFd::~UniqueFd() {
  if (fd_ >= 0) ::close(fd_);
}

Status UniqueFd::close() {
  const int fd = std::exchange(fd_, -1);
  if (fd < 0 || ::close(fd) == 0 || errno == EINTR) return {};
  const int cause = errno;
  return fail(ErrorCode::kIo, std::string("close: ") + std::strerror(cause), cause);
}

}  // namespace deepfreeze

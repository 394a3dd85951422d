#include "ipc/wake_up.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <tuple>

#include "base/try.h"

namespace deepfreeze {

Result<WakeUp> WakeUp::make() {
  UniqueFd file(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (file.valid()) return WakeUp(std::move(file));
  const int cause = errno;
  return fail(ErrorCode::kIo, std::string("make an eventfd: ") + std::strerror(cause), cause);
}

void WakeUp::notify() const {
  const std::uint64_t one = 1;
  std::ignore = ::write(file_.get(), &one, sizeof(one));
}

void WakeUp::clear() const {
  std::uint64_t count = 0;
  std::ignore = ::read(file_.get(), &count, sizeof(count));
}

}  // namespace deepfreeze

#include "base/random_id.h"

#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include <cstdlib>

#include "base/unique_fd.h"

namespace deepfreeze {

// Without std::random_device: libstdc++'s asks for glibc 2.36, and wheels run on 2.34.
std::uint64_t random_id() {
  std::uint64_t id = 0;
  // Eight bytes come whole or not at all. A sandbox may forbid the call, and have the device.
  if (::getrandom(&id, sizeof id, 0) == static_cast<ssize_t>(sizeof id)) return id;
  const UniqueFd device(::open("/dev/urandom", O_RDONLY | O_CLOEXEC));
  if (::read(device.get(), &id, sizeof id) != static_cast<ssize_t>(sizeof id)) std::abort();
  return id;
}

}  // namespace deepfreeze

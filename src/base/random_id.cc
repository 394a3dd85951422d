#include "base/random_id.h"

#include <sys/random.h>

#include <random>

namespace deepfreeze {

std::uint64_t random_id() {
  std::uint64_t id = 0;
  // Eight bytes come whole or not at all; the fallback reads the same kernel source.
  if (::getrandom(&id, sizeof id, 0) == static_cast<ssize_t>(sizeof id)) return id;
  std::random_device device;
  return (static_cast<std::uint64_t>(device()) << 32) | device();
}

}  // namespace deepfreeze

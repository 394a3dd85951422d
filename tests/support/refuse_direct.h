// Runs code whose direct writes and reads fail, as on a file system that takes O_DIRECT only at
// open. Linux.
#pragma once

#include <functional>

namespace deepfreeze {

// pwrite() or pread() on a descriptor with O_DIRECT gives EINVAL in `body`, which runs in a thread
// of its own. False if this machine allows no such filter: `body` has not run.
[[nodiscard]] bool run_with_direct_access_refused(const std::function<void()>& body);

}  // namespace deepfreeze

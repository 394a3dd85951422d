// Puts a seccomp filter on the calling thread. Tells a machine that allows none from a filter that
// is wrong: the first leaves tests out, the second must not. Linux only.
#pragma once

#include <linux/filter.h>

#include <optional>
#include <span>

namespace deepfreeze {

// For this thread and for good: filters are never taken off. What SECCOMP_SET_MODE_FILTER gives
// with these flags, a listener's descriptor or 0; nothing where the machine takes no filter at
// all. Where it takes one but not this one, the process is ended with a message.
[[nodiscard]] std::optional<int> add_seccomp_filter(std::span<sock_filter> program,
                                                    unsigned int flags = 0);

}  // namespace deepfreeze

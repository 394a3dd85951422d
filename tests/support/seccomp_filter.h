// Puts a seccomp filter on the calling thread. Tells a machine that allows none from a filter that
// is wrong: the first leaves tests out, the second must not. Linux only.
#pragma once

#include <linux/filter.h>

#include <optional>
#include <span>

namespace deepfreeze {

// Adds a filter to this thread for good: filters are never taken off. Returns the result of
// SECCOMP_SET_MODE_FILTER with these flags, a listener's descriptor or 0; nothing if the machine
// takes no filter at all. If it takes one but not this one, the process is ended with a message.
[[nodiscard]] std::optional<int> add_seccomp_filter(std::span<sock_filter> program,
                                                    unsigned int flags = 0);

}  // namespace deepfreeze

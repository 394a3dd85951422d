// A Python callable as the source of keys for an object store.
#pragma once

#include <nanobind/nanobind.h>

#include "deepfreeze/options.h"

namespace deepfreeze::python {

// `ask` returns access key, secret key, session token and their end in seconds since 1970, or None.
// It may be called by any thread, which takes the GIL. Empty for None.
[[nodiscard]] KeySource make_keys(nanobind::object ask);

}  // namespace deepfreeze::python

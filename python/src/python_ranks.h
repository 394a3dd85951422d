// A group of ranks that Python implements: an object with rank, world_size, gather(bytes) and
// scatter(list of bytes), which raise where the C++ ones return an error.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "deepfreeze/ranks.h"

namespace deepfreeze::python {

// With the GIL held; the group's own calls take it. Null for None.
[[nodiscard]] std::shared_ptr<RankGroup> make_ranks(nanobind::object group);

}  // namespace deepfreeze::python

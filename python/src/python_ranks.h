// A group of ranks implemented in Python: an object with rank, world_size, gather(bytes) and
// scatter(list of bytes), which raise exceptions; the C++ calls return errors.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "deepfreeze/ranks.h"

namespace deepfreeze::python {

// With the GIL held; the group's own calls take it. Null for None.
[[nodiscard]] std::shared_ptr<RankGroup> make_ranks(nanobind::object group);

}  // namespace deepfreeze::python

// Boxes as sets of elements. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "deepfreeze/tensor.h"

namespace deepfreeze {

// What both have; nothing where that is no element. Both of the same dimensions.
[[nodiscard]] std::optional<Box> intersect(const Box& a, const Box& b);

// The part of its whole that the spec stores: its box, or all of it.
[[nodiscard]] Box stored_box(const TensorSpec& spec);
[[nodiscard]] const Shape& whole_shape(const TensorSpec& spec);

// Why the boxes are not a tiling of the whole, each element in one of them: two that overlap, or an
// element that none has. Nothing where they are. All within the whole; those without an element
// count for nothing. In time n log n for n boxes of a grid, n^2 at worst.
[[nodiscard]] std::optional<std::string> fault_of_tiling(std::vector<const Box*> boxes,
                                                         const Shape& whole);

}  // namespace deepfreeze

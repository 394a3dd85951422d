// Boxes as sets of elements. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "deepfreeze/tensor.h"

namespace deepfreeze {

// What both have; nothing where that is no element. Both of the same dimensions.
[[nodiscard]] std::optional<Box> intersect(const Box& a, const Box& b);

// What of its whole the spec stores: its box, or all of it.
[[nodiscard]] Box stored_box(const TensorSpec& spec);
[[nodiscard]] const Shape& whole_shape(const TensorSpec& spec);

// What of `common`, which is within both boxes, lies together in each: so many elements, from which
// one on in each of them, row-major.
struct BoxRun {
  std::uint64_t from = 0;
  std::uint64_t to = 0;
  std::uint64_t elements = 0;
};
// The longest such stretches, in the order of their elements.
[[nodiscard]] std::vector<BoxRun> runs_of(const Box& common, const Box& from, const Box& to);

[[nodiscard]] std::uint64_t element_count(const Shape& extent);  // of what check_spec() accepts

// Why the boxes are not a tiling of the whole, each element in one of them: two that overlap, or
// how many elements they have. Nothing where they are. All lie within the whole, of which
// check_spec() knows the size; those without an element count for nothing. A tiling that no cuts
// from side to side make, as bricks around a hole, may be of 256.
[[nodiscard]] std::optional<std::string> fault_of_tiling(std::vector<const Box*> boxes,
                                                         const Shape& whole);

// Why specs of one key, all that are stored, are not one tensor with each element stored once.
[[nodiscard]] std::optional<std::string> fault_of_boxes(std::span<const TensorSpec* const> specs);

}  // namespace deepfreeze

// Boxes as sets of elements. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "deepfreeze/tensor.h"

namespace deepfreeze {

// The elements that both boxes have; nothing if they share none. Both have the same number of
// dimensions.
[[nodiscard]] std::optional<Box> intersect(const Box& a, const Box& b);

// The part of the whole tensor that the spec stores: its box, or all of it.
[[nodiscard]] Box stored_box(const TensorSpec& spec);
[[nodiscard]] const Shape& whole_shape(const TensorSpec& spec);

// A stretch of `common`, a box within both of two others, that is contiguous in each of them:
// `elements` of them, from row-major index `from` in one box and `to` in the other.
struct BoxRun {
  std::uint64_t from = 0;
  std::uint64_t to = 0;
  std::uint64_t elements = 0;
};
// The longest such stretches, in the order of their elements.
[[nodiscard]] std::vector<BoxRun> runs_of(const Box& common, const Box& from, const Box& to);

[[nodiscard]] std::uint64_t element_count(const Shape& extent);  // `extent` must come from a spec
                                                                 // that check_spec() accepts

// Says why the boxes do not tile the whole with each element in exactly one of them: two boxes that
// overlap, or their count of elements. Nothing if they do. All lie within the whole, whose size
// check_spec() has verified; boxes without an element are ignored. A tiling that no cuts from side
// to side produce, like bricks around a hole, may have up to 256 boxes.
[[nodiscard]] std::optional<std::string> fault_of_tiling(std::vector<const Box*> boxes,
                                                         const Shape& whole);

// Why specs of one key, all that are stored, are not one tensor with each element stored once.
[[nodiscard]] std::optional<std::string> fault_of_boxes(std::span<const TensorSpec* const> specs);

}  // namespace deepfreeze

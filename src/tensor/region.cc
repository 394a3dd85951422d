#include "tensor/region.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <span>
#include <utility>

namespace deepfreeze {
namespace {

using Boxes = std::span<const Box*>;

std::uint64_t volume(const Shape& extent) {
  return std::accumulate(extent.begin(), extent.end(), std::uint64_t{1}, std::multiplies{});
}

using Interval = std::pair<std::uint64_t, std::uint64_t>;

Interval interval_of(const Box* box, std::size_t dimension) {
  return {box->offset[dimension], box->offset[dimension] + box->extent[dimension]};
}

// Whether the boxes are layers, one after the other in this dimension, each of which is so in the
// next. A tiling need not be, but what the layouts of training make is.
bool is_layered(Boxes boxes, const Shape& whole, std::size_t dimension = 0) {
  if (dimension == whole.size()) return boxes.size() == 1;
  const auto interval = [dimension](const Box* box) { return interval_of(box, dimension); };
  if (!std::ranges::is_sorted(boxes, {}, interval)) std::ranges::sort(boxes, {}, interval);
  std::uint64_t reached = 0;
  while (!boxes.empty()) {
    const Interval layer = interval(boxes.front());
    if (layer.first != reached) return false;
    reached = layer.second;
    const auto next =
        std::ranges::find_if(boxes, [&](const Box* box) { return interval(box) != layer; });
    const auto count = static_cast<std::size_t>(next - boxes.begin());
    if (!is_layered(boxes.first(count), whole, dimension + 1)) return false;
    boxes = boxes.subspan(count);
  }
  return reached == whole[dimension];
}

std::optional<std::string> overlap_among(Boxes boxes) {
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (!intersect(*boxes[i], *boxes[j])) continue;
      return fmt::format("a part at {} of {} overlaps one at {} of {}", boxes[i]->offset,
                         boxes[i]->extent, boxes[j]->offset, boxes[j]->extent);
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<Box> intersect(const Box& a, const Box& b) {
  Box common = a;
  for (std::size_t i = 0; i < a.offset.size(); ++i) {
    const std::uint64_t begin = std::max(a.offset[i], b.offset[i]);
    const std::uint64_t end = std::min(a.offset[i] + a.extent[i], b.offset[i] + b.extent[i]);
    if (begin >= end) return std::nullopt;
    common.offset[i] = begin;
    common.extent[i] = end - begin;
  }
  return common;
}

Box stored_box(const TensorSpec& spec) {
  if (spec.box) return *spec.box;
  return {.offset = Shape(spec.shape.size()), .extent = spec.shape};
}

const Shape& whole_shape(const TensorSpec& spec) {
  return spec.box ? spec.global_shape : spec.shape;
}

std::optional<std::string> fault_of_tiling(std::vector<const Box*> boxes, const Shape& whole) {
  std::erase_if(boxes, [](const Box* box) { return volume(box->extent) == 0; });
  if (volume(whole) == 0 || is_layered(boxes, whole)) return std::nullopt;
  if (auto overlap = overlap_among(boxes)) return overlap;
  std::uint64_t stored = 0;
  for (const Box* box : boxes) stored += volume(box->extent);
  if (stored == volume(whole)) return std::nullopt;
  return fmt::format("its parts have {} of {} elements", stored, volume(whole));
}

}  // namespace deepfreeze

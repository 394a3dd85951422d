#include "tensor/region.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

namespace deepfreeze {
namespace {

constexpr int kCutsMax = 64;  // one within the other; more than dimensions
// Each such box is compared with every other one. No layout of training needs as many.
constexpr std::size_t kOddBoxesMax = 256;

using Boxes = std::span<const Box*>;

using Interval = std::pair<std::uint64_t, std::uint64_t>;

Interval interval_of(const Box* box, std::size_t dimension) {
  return {box->offset[dimension], box->offset[dimension] + box->extent[dimension]};
}

// Whether the boxes fill the region with each element in one box, as far as repeated cuts from side
// to side can show it; the layouts that trainings use come from such cuts.
bool fills(Boxes boxes, const Box& region, int depth);

// The boxes up to the first place at which none of them crosses: sorted in this dimension.
std::size_t first_layer(Boxes boxes, std::size_t dimension) {
  std::uint64_t reached = 0;
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    const auto [begin, end] = interval_of(boxes[i], dimension);
    if (i > 0 && begin >= reached) return i;
    reached = std::max(reached, end);
  }
  return boxes.size();
}

bool fills_by_layers(Boxes boxes, const Box& region, std::size_t dimension, int depth) {
  Box layer = region;
  for (std::size_t count = 0; !boxes.empty(); boxes = boxes.subspan(count)) {
    count = first_layer(boxes, dimension);
    const std::uint64_t end = count < boxes.size() ? interval_of(boxes[count], dimension).first
                                                   : interval_of(&region, dimension).second;
    layer.extent[dimension] = end - layer.offset[dimension];
    if (!fills(boxes.first(count), layer, depth)) return false;
    layer.offset[dimension] = end;
  }
  return true;
}

bool fills(Boxes boxes, const Box& region, int depth) {
  if (boxes.size() == 1) return *boxes.front() == region;
  if (depth == kCutsMax) return false;
  for (std::size_t dimension = 0; dimension < region.extent.size(); ++dimension) {
    const auto interval = [dimension](const Box* box) { return interval_of(box, dimension); };
    if (!std::ranges::is_sorted(boxes, {}, interval)) std::ranges::sort(boxes, {}, interval);
    if (first_layer(boxes, dimension) == boxes.size()) continue;
    return fills_by_layers(boxes, region, dimension, depth + 1);
  }
  return false;
}

Interval common_interval(const Box& a, const Box& b, std::size_t dimension) {
  const Interval first = interval_of(&a, dimension);
  const Interval second = interval_of(&b, dimension);
  return {std::max(first.first, second.first), std::min(first.second, second.second)};
}

std::uint64_t product(std::span<const std::uint64_t> numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), std::uint64_t{1}, std::multiplies{});
}

// The first dimension from which on all elements of `common` are contiguous in both boxes: in later
// dimensions neither box has elements outside `common`.
std::size_t rows_together(const Box& common, const Box& from, const Box& to) {
  std::size_t split = common.extent.size();
  while (split > 0) {
    --split;
    const std::uint64_t extent = common.extent[split];
    if (extent != from.extent[split] || extent != to.extent[split]) break;
  }
  return split;
}

// Row-major.
std::uint64_t place_in(const Box& box, const Shape& index) {
  std::uint64_t place = 0;
  for (std::size_t i = 0; i < index.size(); ++i) {
    place = place * box.extent[i] + (index[i] - box.offset[i]);
  }
  return place;
}

// Moves to the next index of the dimensions before `split`; false after the last.
bool step(Shape& index, const Box& box, std::size_t split) {
  for (std::size_t i = split; i-- > 0;) {
    if (++index[i] < box.offset[i] + box.extent[i]) return true;
    index[i] = box.offset[i];
  }
  return false;
}

std::optional<std::string> overlap_among(Boxes boxes) {
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (!intersect(*boxes[i], *boxes[j])) continue;
      return fmt::format("a box at {} of {} overlaps one at {} of {}", boxes[i]->offset,
                         boxes[i]->extent, boxes[j]->offset, boxes[j]->extent);
    }
  }
  return std::nullopt;
}

}  // namespace

std::uint64_t element_count(const Shape& extent) { return product(extent); }

std::optional<Box> intersect(const Box& a, const Box& b) {
  for (std::size_t i = 0; i < a.offset.size(); ++i) {
    const auto [begin, end] = common_interval(a, b, i);
    if (begin >= end) return std::nullopt;
  }
  Box common = a;
  for (std::size_t i = 0; i < a.offset.size(); ++i) {
    const auto [begin, end] = common_interval(a, b, i);
    common.offset[i] = begin;
    common.extent[i] = end - begin;
  }
  return common;
}

std::vector<BoxRun> runs_of(const Box& common, const Box& from, const Box& to) {
  if (element_count(common.extent) == 0) return {};
  const std::size_t split = rows_together(common, from, to);
  const std::span<const std::uint64_t> extent(common.extent);
  const std::uint64_t elements = product(extent.subspan(split));
  std::vector<BoxRun> runs;
  Shape index = common.offset;  // in the whole; steps through the dimensions before `split`
  do {
    runs.push_back({place_in(from, index), place_in(to, index), elements});
  } while (step(index, common, split));
  return runs;
}

Box stored_box(const TensorSpec& spec) {
  if (spec.box) return *spec.box;
  return {.offset = Shape(spec.shape.size()), .extent = spec.shape};
}

const Shape& whole_shape(const TensorSpec& spec) {
  return spec.box ? spec.global_shape : spec.shape;
}

std::optional<std::string> fault_of_tiling(std::vector<const Box*> boxes, const Shape& whole) {
  std::erase_if(boxes, [](const Box* box) { return element_count(box->extent) == 0; });
  const Box region{.offset = Shape(whole.size()), .extent = whole};
  if (element_count(whole) == 0 || fills(boxes, region, 0)) return std::nullopt;
  if (boxes.size() <= kOddBoxesMax) {
    if (auto overlap = overlap_among(boxes)) return overlap;
  }
  std::uint64_t stored = 0;
  for (const Box* box : boxes) stored += element_count(box->extent);
  if (stored != element_count(whole)) {
    return fmt::format("its boxes have {} of {} elements", stored, element_count(whole));
  }
  if (boxes.size() <= kOddBoxesMax) return std::nullopt;
  return fmt::format("its {} boxes overlap, or are too many for their layout", boxes.size());
}

std::optional<std::string> fault_of_boxes(std::span<const TensorSpec* const> specs) {
  const TensorSpec& first = *specs.front();
  if (specs.size() == 1 && !first.box) return std::nullopt;
  std::vector<const Box*> boxes;
  for (const TensorSpec* spec : specs) {
    if (!spec->box || !first.box) return "it is stored twice";
    if (spec->dtype != first.dtype || spec->logical_dtype != first.logical_dtype ||
        spec->global_shape != first.global_shape) {
      return "it is stored twice, with another dtype or shape";
    }
    boxes.push_back(&*spec->box);
  }
  return fault_of_tiling(std::move(boxes), first.global_shape);
}

}  // namespace deepfreeze

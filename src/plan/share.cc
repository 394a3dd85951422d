#include "plan/share.h"

#include <algorithm>

#include "tensor/region.h"

namespace deepfreeze {

Rows rows_of(const TensorSpec& spec) {
  const std::uint64_t bytes = spec_bytes(spec).value_or(0);
  // The last dimension of a logical dtype is its elements' own.
  const std::size_t own = spec.logical_dtype.empty() ? 0 : 1;
  const auto end = spec.shape.end() - static_cast<std::ptrdiff_t>(std::min(own, spec.shape.size()));
  const auto longer = std::find_if(spec.shape.begin(), end, [](std::uint64_t n) { return n > 1; });
  if (bytes == 0) return {};
  if (longer == end) return {.dimension = 0, .count = 1, .bytes = bytes};
  return {.dimension = static_cast<std::size_t>(longer - spec.shape.begin()),
          .count = *longer,
          .bytes = bytes / *longer};
}

TensorSpec spec_of_share(const TensorSpec& spec, const Share& share) {
  const Rows rows = rows_of(spec);
  if (share.rows == rows.count) return spec;
  TensorSpec written = spec;
  written.global_shape = whole_shape(spec);
  written.box = stored_box(spec);
  written.box->offset[rows.dimension] += share.first_row;
  written.box->extent[rows.dimension] = share.rows;
  written.shape = written.box->extent;
  return written;
}

}  // namespace deepfreeze

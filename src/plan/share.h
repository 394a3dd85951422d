// The share of a tensor that a rank is given to write: whole rows, so that it is one box and its
// bytes are contiguous.
#pragma once

#include <cstdint>

#include "deepfreeze/tensor.h"

namespace deepfreeze {

// Rows along the first dimension that has more than one index: the first dimension by which
// row-major bytes can be cut. A tensor without such a dimension is one row; a tensor without
// elements has none.
struct Rows {
  std::size_t dimension = 0;
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;  // of each
};
[[nodiscard]] Rows rows_of(const TensorSpec& spec);  // of a spec that check_spec() has accepted

// Rows of tensor `tensor` of a rank's table, as that rank has it.
struct Share {
  std::uint32_t tensor = 0;
  std::uint64_t first_row = 0;
  std::uint64_t rows = 0;
  bool operator==(const Share&) const = default;
};

// The spec under which files store the share: the spec itself if the share is all of it, else a box
// of its whole.
[[nodiscard]] TensorSpec spec_of_share(const TensorSpec& spec, const Share& share);

}  // namespace deepfreeze

// The least and the greatest value of a tensor, as a save with statistics stores them.
#pragma once

#include <cstdint>

namespace deepfreeze {

// The range of the stored elements; a complex number counts as two.
struct ValueRange {
  double min = 0;  // of the finite elements; 0, as is max, if there are none
  double max = 0;
  std::uint64_t finite = 0;
  std::uint64_t non_finite = 0;  // NaN or infinite
  bool operator==(const ValueRange&) const = default;
};

}  // namespace deepfreeze

// Checks of the tensors that a caller wants to save. Pure functions.
#pragma once

#include <span>

#include "deepfreeze/tensor.h"

namespace deepfreeze {

// Keys non-empty, within kKeyBytesMax, valid UTF-8 and unique; shapes within kRankMax and
// consistent with box, global_shape and data size. The error names the key.
[[nodiscard]] Status check_table(const TensorTable& table);
[[nodiscard]] Status check_spec(const TensorSpec& spec);

}  // namespace deepfreeze

// Tensor specs as ranks send them to each other. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "deepfreeze/tensor.h"

namespace deepfreeze {

[[nodiscard]] std::string encode_specs(const std::vector<TensorSpec>& specs);
// kInternal if the bytes are malformed; for specs that check_spec() refuses, its error.
[[nodiscard]] Result<std::vector<TensorSpec>> decode_specs(std::string_view bytes);

}  // namespace deepfreeze

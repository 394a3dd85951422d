// The header of a safetensors file as other programs write it: names, dtypes, shapes. Pure.
#pragma once

#include <span>
#include <string>

#include "deepfreeze/tensor.h"
#include "format/layout.h"

namespace deepfreeze {

// Length field, JSON and padding to a page, so that data starts aligned. `layout` is of `specs`.
// kInvalidArgument above kHeaderBytesMax, or for a tensor of the reserved name.
[[nodiscard]] Result<std::string> plain_safetensors_header(std::span<const TensorSpec> specs,
                                                           const Layout& layout);

}  // namespace deepfreeze

// How inspections write times and tensors for people. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "deepfreeze/tensor.h"

namespace deepfreeze {

[[nodiscard]] std::string utc_time(std::int64_t micros);       // "2026-11-21 08:52:10 UTC"
[[nodiscard]] std::string shape_text(const Shape& shape);      // "[64, 3]"
[[nodiscard]] std::string dtype_text(const TensorSpec& spec);  // "F32 (complex64)"

}  // namespace deepfreeze

#include <algorithm>
#include <array>

#include "base/checked_math.h"
#include "base/try.h"
#include "deepfreeze/tensor.h"

namespace deepfreeze {
namespace {

struct DTypeRow {
  std::string_view name;
  std::size_t bytes;
};

// In the order of DType; the names are those of safetensors.
constexpr std::array<DTypeRow, 15> kRows = {{{"BOOL", 1},
                                             {"U8", 1},
                                             {"I8", 1},
                                             {"F8_E4M3", 1},
                                             {"F8_E5M2", 1},
                                             {"I16", 2},
                                             {"U16", 2},
                                             {"F16", 2},
                                             {"BF16", 2},
                                             {"I32", 4},
                                             {"U32", 4},
                                             {"F32", 4},
                                             {"I64", 8},
                                             {"U64", 8},
                                             {"F64", 8}}};

const DTypeRow& row(DType dtype) { return kRows.at(static_cast<std::size_t>(dtype)); }

}  // namespace

std::string_view dtype_name(DType dtype) { return row(dtype).name; }
std::size_t dtype_bytes(DType dtype) { return row(dtype).bytes; }

std::optional<DType> dtype_from_name(std::string_view name) {
  const auto* found = std::ranges::find(kRows, name, &DTypeRow::name);
  if (found == kRows.end()) return std::nullopt;
  return static_cast<DType>(found - kRows.begin());
}

Result<std::uint64_t> spec_bytes(const TensorSpec& spec) {
  // A zero anywhere makes the tensor empty, whatever the other sizes would overflow to.
  if (std::ranges::find(spec.shape, 0U) != spec.shape.end()) return 0;
  std::uint64_t bytes = dtype_bytes(spec.dtype);
  for (const std::uint64_t size : spec.shape) {
    const auto product = checked_mul(bytes, size);
    if (!product) {
      return fail(ErrorCode::kInvalidArgument,
                  "tensor " + spec.key + ": its size in bytes does not fit 64 bits");
    }
    bytes = *product;
  }
  return bytes;
}

}  // namespace deepfreeze

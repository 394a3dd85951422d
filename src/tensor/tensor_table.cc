#include "tensor/tensor_table.h"

#include <fmt/format.h>

#include <unordered_set>

#include "base/try.h"
#include "base/utf8.h"

namespace deepfreeze {
namespace {

std::unexpected<Error> refuse(const TensorSpec& spec, std::string_view cause) {
  return fail(ErrorCode::kInvalidArgument, fmt::format("tensor \"{}\": {}", spec.key, cause));
}

Status check_key(const TensorSpec& spec) {
  if (spec.key.empty()) return refuse(spec, "its key is empty");
  if (spec.key.size() > kKeyBytesMax) {
    return refuse(spec, fmt::format("its key has {} bytes, and may have {}: give it, or its "
                                    "container, a shorter name",
                                    spec.key.size(), kKeyBytesMax));
  }
  if (!is_utf8(spec.key)) return refuse(spec, "its key is not UTF-8");
  if (spec.key == "__metadata__") return refuse(spec, "the file format reserves this key");
  return {};
}

Status check_box(const TensorSpec& spec) {
  if (!spec.box) {
    if (spec.global_shape.empty()) return {};
    return refuse(spec, "it has a global shape and no box");
  }
  const auto& [offset, extent] = *spec.box;
  if (extent != spec.shape) return refuse(spec, "its shape is not its box's extent");
  if (offset.size() != extent.size() || spec.global_shape.size() != extent.size()) {
    return refuse(spec, "its box and its global shape differ in rank");
  }
  for (std::size_t i = 0; i < extent.size(); ++i) {
    const std::uint64_t size = spec.global_shape[i];
    if (offset[i] > size || extent[i] > size - offset[i]) {
      return refuse(spec, "its box leaves its global shape");
    }
  }
  if (!spec_bytes({.dtype = spec.dtype, .shape = spec.global_shape})) {
    return refuse(spec, "its global shape has too many elements");
  }
  return {};
}

}  // namespace

Status check_spec(const TensorSpec& spec) {
  DF_TRY_VOID(check_key(spec));
  if (spec.shape.size() > kRankMax) return refuse(spec, "it has too many dimensions");
  if (!is_utf8(spec.logical_dtype)) return refuse(spec, "its logical dtype is not UTF-8");
  DF_TRY_VOID(spec_bytes(spec));
  return check_box(spec);
}

Status check_table(const TensorTable& table) {
  if (table.size() > kTensorsMax) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("{} tensors are too many", table.size()));
  }
  std::unordered_set<std::string_view> keys;
  keys.reserve(table.size());
  for (const Tensor& tensor : table) {
    DF_TRY_VOID(check_spec(tensor.spec));
    if (!keys.insert(tensor.spec.key).second) return refuse(tensor.spec, "its key is used twice");
    DF_TRY(const std::uint64_t bytes, spec_bytes(tensor.spec));
    if (tensor.guard > kGuardsMax) return refuse(tensor.spec, "its guard is too large");
    if (tensor.data.size() != bytes) {
      return refuse(tensor.spec, fmt::format("{} bytes were given, and its shape has {}",
                                             tensor.data.size(), bytes));
    }
  }
  return {};
}

}  // namespace deepfreeze

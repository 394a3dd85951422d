// The data of a save: named arrays and the places of their bytes. Value types, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "deepfreeze/device.h"
#include "deepfreeze/result.h"

namespace deepfreeze {

// The stored element types: those that every safetensors reader since 0.4.5 knows.
// Other types are stored as one of these with a logical dtype beside it.
enum class DType : std::uint8_t {
  kBool,
  kU8,
  kI8,
  kF8E4M3,
  kF8E5M2,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kI64,
  kU64,
  kF64,
};

[[nodiscard]] std::string_view dtype_name(DType dtype);  // the safetensors name, e.g. "BF16"
[[nodiscard]] std::optional<DType> dtype_from_name(std::string_view name);
[[nodiscard]] std::size_t dtype_bytes(DType dtype);  // bytes per element: 1, 2, 4 or 8

using Shape = std::vector<std::uint64_t>;

// Some of a tensor, or all: `extent` elements from `offset` in every dimension.
struct Box {
  Shape offset;
  Shape extent;
  bool operator==(const Box&) const = default;
};

// Names and describes one stored array.
struct TensorSpec {
  std::string key;           // dotted path, UTF-8, 1 to kKeyBytesMax bytes
  DType dtype = DType::kU8;  // of the stored elements
  Shape shape;               // of the stored elements; at most kRankMax dimensions
  // Set if `dtype` stands for another type, e.g. "complex64" stored as F32[..., 2]. The logical
  // shape is `shape` without its last dimension.
  std::string logical_dtype;
  // Set if only part of the tensor is stored here: shape == box->extent.
  std::optional<Box> box;
  Shape global_shape;  // of the whole tensor; empty when `box` is not set
  bool operator==(const TensorSpec&) const = default;
};

// A tensor to save: its bytes are row-major.
struct Tensor {
  TensorSpec spec;
  std::span<const std::byte> data;  // exactly spec_bytes(spec); an address of `device`
  // 0: copied before save() returns. Else captured while the caller goes on: the bytes stay valid
  // until the save is captured, and unchanged until Checkpointer::fence(guard) has returned.
  std::uint32_t guard = 0;  // at most kGuardsMax
  // On a device, the bytes stay valid until the save is captured, whatever the guard: there, guards
  // order only the work of streams (SaveRequest::streams).
  std::int32_t device = kHostMemory;
};

// A tensor whose copies on several ranks should be equal and are not: a machine has changed a bit,
// or the ranks have computed differently.
struct Divergence {
  std::string key;
  // The ranks that differ from the majority; all ranks that have the tensor if there is no
  // majority. Ascending.
  std::vector<std::uint32_t> ranks;
  bool operator==(const Divergence&) const = default;
};

// Fences of one save: one for all tensors of an optimizer, or one for each tensor.
inline constexpr std::uint32_t kGuardsMax = 1'000'000;

using TensorTable = std::vector<Tensor>;

inline constexpr std::size_t kRankMax = 32;             // dimensions of one tensor
inline constexpr std::size_t kKeyBytesMax = 4096;       // bytes of one key
inline constexpr std::size_t kTensorsMax = 10'000'000;  // tensors of one state

// Bytes of the stored elements; kInvalidArgument if the product overflows 64 bits.
[[nodiscard]] Result<std::uint64_t> spec_bytes(const TensorSpec& spec);

}  // namespace deepfreeze

// The part of DLPack's C exchange interface (dlpack.h, version 1.2 and later) that is used here: a
// function of the framework that fills in a tensor's place without creating an object. The layouts
// are those of the standard, fixed for its major version. Call with the GIL.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>

namespace deepfreeze::python {

struct DLDevice {
  std::int32_t type;
  std::int32_t id;
  bool operator==(const DLDevice&) const = default;
};

struct DLDataType {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
  bool operator==(const DLDataType&) const = default;
};

inline constexpr std::uint8_t kDLComplex = 5;

// Belongs to the tensor that it was filled in for.
struct DLTensor {
  void* data;
  DLDevice device;
  std::int32_t ndim;
  DLDataType dtype;
  const std::int64_t* shape;
  const std::int64_t* strides;  // in elements
  std::uint64_t byte_offset;
};

struct DLPackExchange {
  std::uint32_t major_version;
  std::uint32_t minor_version;
  const DLPackExchange* older;
  void* allocate;
  void* managed_from_object;
  void* managed_to_object;
  // Returns -1 with a Python exception set if it fails. May be null.
  int (*tensor_from_object)(void* object, DLTensor* out);
  void* current_work_stream;
};

// The interface of a tensor type; null if it has none, or one of another major version.
inline const DLPackExchange* dlpack_exchange_of(const nanobind::object& type) {
  if (!nanobind::hasattr(type, "__dlpack_c_exchange_api__")) return nullptr;
  const nanobind::object capsule = type.attr("__dlpack_c_exchange_api__");
  const void* found = PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api");
  if (found == nullptr) nanobind::raise_python_error();
  const auto* exchange = static_cast<const DLPackExchange*>(found);
  const bool fits = exchange->major_version == 1 && exchange->tensor_from_object != nullptr;
  return fits ? exchange : nullptr;
}

}  // namespace deepfreeze::python

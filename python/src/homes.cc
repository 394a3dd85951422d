#include "homes.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include "python_calls.h"

namespace nb = nanobind;

namespace deepfreeze::python {
namespace {

constexpr std::int32_t kDLCPU = 1;
constexpr std::uint8_t kDLInt = 0, kDLUInt = 1, kDLFloat = 2, kDLBfloat = 4, kDLBool = 6;

// None for dtypes that not every torch describes to DLPack.
std::optional<DLDataType> dlpack_type(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return DLDataType{kDLBool, 8, 1};
    case DType::kU8:
      return DLDataType{kDLUInt, 8, 1};
    case DType::kI8:
      return DLDataType{kDLInt, 8, 1};
    case DType::kI16:
      return DLDataType{kDLInt, 16, 1};
    case DType::kU16:
      return DLDataType{kDLUInt, 16, 1};
    case DType::kF16:
      return DLDataType{kDLFloat, 16, 1};
    case DType::kBF16:
      return DLDataType{kDLBfloat, 16, 1};
    case DType::kI32:
      return DLDataType{kDLInt, 32, 1};
    case DType::kU32:
      return DLDataType{kDLUInt, 32, 1};
    case DType::kF32:
      return DLDataType{kDLFloat, 32, 1};
    case DType::kI64:
      return DLDataType{kDLInt, 64, 1};
    case DType::kU64:
      return DLDataType{kDLUInt, 64, 1};
    case DType::kF64:
      return DLDataType{kDLFloat, 64, 1};
    case DType::kF8E4M3:
    case DType::kF8E5M2:
      return std::nullopt;
  }
  return std::nullopt;
}

std::string_view text_in(nb::handle text) {
  Py_ssize_t size = 0;
  const char* found = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
  if (found == nullptr) nb::raise_python_error();
  return {found, static_cast<std::size_t>(size)};
}

// The size of the elements if they lie row by row without gaps, and have the stored form.
std::optional<std::size_t> bytes_if_alike(const TensorSpec& spec, const DLTensor& live) {
  const auto ndim = static_cast<std::size_t>(live.ndim);
  if (!spec.logical_dtype.empty() || dlpack_type(spec.dtype) != live.dtype ||
      spec.shape.size() != ndim) {
    return std::nullopt;
  }
  std::uint64_t step = 1;
  bool is_dense = true;
  for (std::size_t i = ndim; i-- > 0;) {
    const auto size = static_cast<std::uint64_t>(live.shape[i]);
    if (size != spec.shape[i]) return std::nullopt;
    if (size > 1 && static_cast<std::uint64_t>(live.strides[i]) != step) is_dense = false;
    step *= size;
  }
  if (!is_dense) return std::nullopt;
  return step * dtype_bytes(spec.dtype);
}

}  // namespace

// At one tensor after the other.
class Homes::Look {
 public:
  explicit Look(const OpenCheckpoint& checkpoint)
      : checkpoint_(checkpoint),
        torch_(nb::module_::import_("torch")),
        tensor_(torch_.attr("Tensor")),
        parameter_(torch_.attr("nn").attr("Parameter")),
        data_ptr_(torch_.attr("UntypedStorage").attr("data_ptr")),
        methods_(tensor_),
        is_negative_(negative_.function()) {}

  // An exception of Python counts as none: a tensor may have no memory, for instance.
  [[nodiscard]] std::optional<Home> home_if_any(nb::handle key, nb::handle tensor) const {
    try {
      return home_of(key, tensor);
    } catch (nb::python_error& error) {
      if (!error.matches(PyExc_Exception)) throw;
      return std::nullopt;
    }
  }

 private:
  [[nodiscard]] std::optional<Home> home_of(nb::handle key, nb::handle tensor) const {
    if (!tensor.type().is(tensor_) && !tensor.type().is(parameter_)) return std::nullopt;
    const TensorSpec* spec = checkpoint_.tensor(text_in(key));
    if (spec == nullptr) return std::nullopt;
    // First, for it gives a tensor memory of its own that is a copy until it is written.
    const nb::object storage = call(methods_.untyped_storage, tensor);
    const std::uintptr_t storage_end = number(call(data_ptr_, storage)) + bytes_of(storage);
    const DLTensor live = methods_.look_at(tensor);
    const auto bytes = bytes_if_alike(*spec, live);
    if (!bytes || live.device.type != kDLCPU) return std::nullopt;
    const auto begin = reinterpret_cast<std::uintptr_t>(live.data) + live.byte_offset;
    // Storages can be resized, even to nothing.
    if (begin + *bytes > storage_end || is_lazy(tensor, live)) return std::nullopt;
    return Home{spec, {begin, begin + *bytes}};
  }

  [[nodiscard]] bool is_lazy(nb::handle tensor, const DLTensor& live) const {
    return methods_.is_lazy(tensor, live.dtype, nullptr, is_negative_);
  }

  const OpenCheckpoint& checkpoint_;
  nb::module_ torch_;
  nb::object tensor_, parameter_, data_ptr_;
  TensorMethods methods_;
  NegativeProbe negative_;
  TorchFunctions::IsNegative is_negative_;
};

Homes::Homes(const OpenCheckpoint& checkpoint, const nb::list& keys, const nb::list& tensors)
    : checkpoint_(checkpoint) {
  const Look look(checkpoint_);
  homes_.reserve(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::optional<Home> found = look.home_if_any(keys[i], tensors[i]);
    if (!found) {
      others_.push_back(i);
    } else if (found->memory.end > found->memory.begin) {
      homes_.push_back(*found);
    }
  }
  std::ranges::sort(homes_, {},
                    [](const Home& home) { return std::pair(home.memory.begin, home.entry); });
  const auto repeated = std::ranges::unique(homes_);
  homes_.erase(repeated.begin(), repeated.end());
}

std::uint64_t Homes::bytes() const {
  std::uint64_t bytes = 0;
  for (const Home& home : homes_) bytes += home.memory.end - home.memory.begin;
  return bytes;
}

std::vector<std::uintptr_t> Homes::addresses() const {
  std::vector<std::uintptr_t> found;
  found.reserve(homes_.size());
  for (const Home& home : homes_) found.push_back(home.memory.begin);
  return found;
}

std::vector<RestoreTarget> Homes::targets() const {
  std::vector<RestoreTarget> found;
  found.reserve(homes_.size());
  for (const Home& home : homes_) {
    auto* begin = reinterpret_cast<std::byte*>(home.memory.begin);
    found.push_back({.key = home.entry->key, .into = {begin, home.memory.end - home.memory.begin}});
  }
  return found;
}

bool Homes::are_apart(std::span<const Homes* const> all, std::vector<MemorySpan> others) {
  for (const Homes* each : all) {
    std::ranges::transform(each->homes_, std::back_inserter(others), &Home::memory);
  }
  std::ranges::sort(others, {}, &MemorySpan::begin);
  const auto overlap = [](const MemorySpan& a, const MemorySpan& b) { return a.end > b.begin; };
  return std::ranges::adjacent_find(others, overlap) == others.end();
}

}  // namespace deepfreeze::python

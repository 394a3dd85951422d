// Asks tensors whether their places are those of the last save. Everything here is called with the
// GIL.
#include <nanobind/nanobind.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "dlpack_exchange.h"
#include "errors.h"
#include "python_calls.h"
#include "torch_functions.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace deepfreeze::python {
namespace {

std::uint64_t bytes_of(const nb::object& storage) {
  const Py_ssize_t bytes = PyObject_Size(storage.ptr());
  if (bytes < 0) nb::raise_python_error();
  return static_cast<std::uint64_t>(bytes);
}

// torch.Tensor's own functions.
struct TensorMethods {
  explicit TensorMethods(const nb::object& type)
      : exchange(dlpack_exchange_of(type)),
        is_neg(type.attr("is_neg")),
        is_conj(type.attr("is_conj")),
        untyped_storage(type.attr("untyped_storage")) {
    if (exchange == nullptr) throw nb::type_error("a torch without DLPack's C exchange");
  }
  const DLPackExchange* exchange;
  nb::object is_neg, is_conj, untyped_storage;
};

// By torch's own attribute for it; null if it has none.
const void* address_in_cpp(nb::handle object) {
  if (PyObject_HasAttrString(object.ptr(), "_cdata") == 0) return nullptr;
  return reinterpret_cast<const void*>(number(object.attr("_cdata")));
}

// The native function for negation, which is tried on a tensor that is negated: what it answers
// depends on the modes of the thread. In inference mode it takes all tensors for plain ones.
class NegativeProbe {
 public:
  NegativeProbe() {
    if (torch_functions().is_negative == nullptr) return;
    const nb::module_ torch = nb::module_::import_("torch");
    try {
      negated_ = torch.attr("_neg_view")(torch.attr("zeros")(1, "device"_a = "cpu"));
      in_cpp_ = address_in_cpp(negated_);
    } catch (const nb::python_error&) {  // a mode of the program forbids it: Python is asked
    }
  }
  // Null if Python has to be asked now.
  [[nodiscard]] TorchFunctions::IsNegative function() const {
    if (in_cpp_ == nullptr || !torch_functions().is_negative(in_cpp_)) return nullptr;
    return torch_functions().is_negative;
  }

 private:
  nb::object negated_;
  const void* in_cpp_ = nullptr;
};

// The place and form of each tensor's elements in host memory. A tensor that still matches has not
// changed its kind either.
class RollCall {
  static constexpr std::int32_t kInlineDimensions = 5;  // of which torch keeps the sizes in itself
  static constexpr std::ptrdiff_t kTensorBytesMin = 128;

 public:
  explicit RollCall(const nb::list& tensors)
      : tensor_(nb::module_::import_("torch").attr("Tensor")) {
    for (const nb::handle tensor : tensors) note(tensor);
  }

  // Returns the tensors' storages if all lie in their old places, else none.
  [[nodiscard]] nb::object answer(const nb::list& tensors) const {
    const auto is_negative = negative_.function();
    nb::list storages;
    const bool all = holds([&] {
      if (tensors.size() != places_.size()) return false;
      for (std::size_t i = 0; i < places_.size(); ++i) {
        const nb::handle tensor = tensors[i];
        if (!tensor.type().is(places_[i].type) || !lies_at(places_[i], tensor, is_negative)) {
          return false;
        }
        nb::object storage = call(tensor_.untyped_storage, tensor);
        if (bytes_of(storage) != places_[i].storage_bytes) return false;
        storages.append(std::move(storage));
      }
      return true;
    });
    return all ? nb::object(storages) : nb::none();
  }

 private:
  struct Place {
    nb::handle type;  // torch's own, which outlive this
    const void* data = nullptr;
    std::uint64_t storage_bytes = 0;
    const std::int64_t* sizes = nullptr;
    const void* tensor = nullptr;  // in C++, if `sizes` lie in it: it is there if they are
    DLDevice device{};
    DLDataType dtype{};
    std::uint32_t steps = 0;  // index of its shape, which its strides follow
    std::int32_t ndim = 0;
    bool is_lazy = false;  // a negation or conjugate that is not carried out yet
  };

  [[nodiscard]] DLTensor look_at(nb::handle tensor) const {
    DLTensor found{};
    if (tensor_.exchange->tensor_from_object(tensor.ptr(), &found) != 0) nb::raise_python_error();
    return found;
  }

  // `in_cpp`: the tensor's address there, if it is known.
  [[nodiscard]] bool is_lazy(nb::handle tensor, const DLDataType& dtype, const void* in_cpp,
                             TorchFunctions::IsNegative is_negative) const {
    const bool negative = in_cpp != nullptr && is_negative != nullptr
                              ? is_negative(in_cpp)
                              : truth(call(tensor_.is_neg, tensor));
    return negative || (dtype.code == kDLComplex && truth(call(tensor_.is_conj, tensor)));
  }

  // The tensor's address in C++, if its sizes lie within it: other sizes, in memory of their own,
  // could later lie where those of a tensor that is gone lay.
  static const void* around(const DLTensor& found, const void* tensor) {
    const auto* in_cpp = static_cast<const char*>(tensor);
    const auto* sizes = reinterpret_cast<const char*>(found.shape);
    const bool within = in_cpp != nullptr && found.ndim <= kInlineDimensions && sizes > in_cpp &&
                        sizes < in_cpp + kTensorBytesMin;
    return within ? in_cpp : nullptr;
  }

  void note(nb::handle tensor) {
    const DLTensor found = look_at(tensor);
    const nb::object storage = call(tensor_.untyped_storage, tensor);
    places_.push_back({.type = tensor.type(),
                       .data = found.data,
                       .storage_bytes = bytes_of(storage),
                       .sizes = found.shape,
                       .tensor = around(found, address_in_cpp(tensor)),
                       .device = found.device,
                       .dtype = found.dtype,
                       .steps = static_cast<std::uint32_t>(steps_.size()),
                       .ndim = found.ndim,
                       .is_lazy = is_lazy(tensor, found.dtype, nullptr, nullptr)});
    steps_.insert(steps_.end(), found.shape, found.shape + found.ndim);
    steps_.insert(steps_.end(), found.strides, found.strides + found.ndim);
  }

  [[nodiscard]] bool lies_at(const Place& place, nb::handle tensor,
                             TorchFunctions::IsNegative is_negative) const {
    const DLTensor found = look_at(tensor);
    if (found.ndim != place.ndim) return false;
    const auto ndim = static_cast<std::size_t>(place.ndim);
    const auto steps = std::span(steps_).subspan(place.steps, 2 * ndim);
    const void* in_cpp = found.shape == place.sizes ? place.tensor : nullptr;
    return found.data == place.data && found.device == place.device && found.dtype == place.dtype &&
           std::ranges::equal(std::span(found.shape, ndim), steps.first(ndim)) &&
           std::ranges::equal(std::span(found.strides, ndim), steps.last(ndim)) &&
           is_lazy(tensor, found.dtype, in_cpp, is_negative) == place.is_lazy;
  }

  TensorMethods tensor_;
  NegativeProbe negative_;
  std::vector<Place> places_;
  std::vector<std::int64_t> steps_;
};

}  // namespace

void bind_roll_call(nb::module_& module) {
  nb::class_<RollCall>(module, "RollCall")
      .def(nb::init<const nb::list&>(), "tensors"_a)
      .def("answer", &RollCall::answer, "tensors"_a);
}

}  // namespace deepfreeze::python

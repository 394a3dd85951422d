#include "torch_tensors.h"

#include "python_calls.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace deepfreeze::python {

TensorMethods::TensorMethods(const nb::object& type)
    : exchange(dlpack_exchange_of(type)),
      is_neg(type.attr("is_neg")),
      is_conj(type.attr("is_conj")),
      untyped_storage(type.attr("untyped_storage")) {
  if (exchange == nullptr) throw nb::type_error("a torch without DLPack's C exchange");
}

DLTensor TensorMethods::look_at(nb::handle tensor) const {
  DLTensor found{};
  if (exchange->tensor_from_object(tensor.ptr(), &found) != 0) nb::raise_python_error();
  return found;
}

bool TensorMethods::is_lazy(nb::handle tensor, const DLDataType& dtype, const void* in_cpp,
                            TorchFunctions::IsNegative is_negative) const {
  const bool negative = in_cpp != nullptr && is_negative != nullptr ? is_negative(in_cpp)
                                                                    : truth(call(is_neg, tensor));
  return negative || (dtype.code == kDLComplex && truth(call(is_conj, tensor)));
}

std::uint64_t bytes_of(const nb::object& storage) {
  const Py_ssize_t bytes = PyObject_Size(storage.ptr());
  if (bytes < 0) nb::raise_python_error();
  return static_cast<std::uint64_t>(bytes);
}

const void* address_in_cpp(nb::handle object) {
  if (PyObject_HasAttrString(object.ptr(), "_cdata") == 0) return nullptr;
  return reinterpret_cast<const void*>(number(object.attr("_cdata")));
}

NegativeProbe::NegativeProbe() {
  if (torch_functions().is_negative == nullptr) return;
  const nb::module_ torch = nb::module_::import_("torch");
  try {
    negated_ = torch.attr("_neg_view")(torch.attr("zeros")(1, "device"_a = "cpu"));
    in_cpp_ = address_in_cpp(negated_);
  } catch (const nb::python_error&) {  // a mode of the program forbids it: Python is asked
  }
}

TorchFunctions::IsNegative NegativeProbe::function() const {
  if (in_cpp_ == nullptr || !torch_functions().is_negative(in_cpp_)) return nullptr;
  return torch_functions().is_negative;
}

}  // namespace deepfreeze::python

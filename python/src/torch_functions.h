// Functions of libtorch that are found by name in the library that torch has loaded. Python's own
// methods for the same give up the GIL once a tensor, which takes longer than the answer. Nothing
// is compiled or linked against torch: without the library or the name there is no function, and
// the caller asks in Python. Call with the GIL.
#pragma once

namespace deepfreeze::python {

struct TorchFunctions {
  // at::Tensor is one pointer to the tensor in C++, and is passed here by reference.
  using IsNegative = bool (*)(const void* const& tensor);
  IsNegative is_negative = nullptr;  // at::_ops::is_neg::call(); it throws nothing
};

[[nodiscard]] const TorchFunctions& torch_functions();

}  // namespace deepfreeze::python

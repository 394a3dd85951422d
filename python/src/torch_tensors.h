// Questions to torch's tensors, through the methods of their class. Call with the GIL.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>

#include "dlpack_exchange.h"
#include "torch_functions.h"

namespace deepfreeze::python {

// torch.Tensor's own functions.
struct TensorMethods {
  explicit TensorMethods(const nanobind::object& type);  // TypeError without DLPack's C exchange

  // Throws Python's exception if the tensor has no memory that DLPack can describe.
  [[nodiscard]] DLTensor look_at(nanobind::handle tensor) const;
  // Whether the tensor is a negation or conjugate that is not carried out yet. `in_cpp`: its
  // address there; it, or the function, may be null, and Python is asked.
  [[nodiscard]] bool is_lazy(nanobind::handle tensor, const DLDataType& dtype, const void* in_cpp,
                             TorchFunctions::IsNegative is_negative) const;

  const DLPackExchange* exchange;
  nanobind::object is_neg, is_conj, untyped_storage;
};

[[nodiscard]] std::uint64_t bytes_of(const nanobind::object& storage);

// The tensor's address in C++ by torch's own attribute for it; null if it has none.
[[nodiscard]] const void* address_in_cpp(nanobind::handle object);

// The native function for negation, which is tried on a tensor that is negated: what it answers
// depends on the modes of the thread. In inference mode it takes all tensors for plain ones.
class NegativeProbe {
 public:
  NegativeProbe();
  // Null if Python has to be asked now.
  [[nodiscard]] TorchFunctions::IsNegative function() const;

 private:
  nanobind::object negated_;
  const void* in_cpp_ = nullptr;
};

}  // namespace deepfreeze::python

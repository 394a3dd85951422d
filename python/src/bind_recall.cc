// Compares a state with its form at the last save, without a frame of Python for each tensor.
// Everything here is called with the GIL.
#include <nanobind/nanobind.h>

#include <cstddef>
#include <vector>

#include "contents.h"
#include "errors.h"
#include "python_calls.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace deepfreeze::python {
namespace {

// Attributes of tensors, interned once; they live as long as the interpreter.
struct TensorNames {
  PyObject* dtype = PyUnicode_InternFromString("dtype");
  PyObject* layout = PyUnicode_InternFromString("layout");
  PyObject* device = PyUnicode_InternFromString("device");
  PyObject* is_cpu = PyUnicode_InternFromString("is_cpu");
};

const TensorNames& tensor_names() {
  static const TensorNames found;
  return found;
}

// The type and device of each tensor; no tensor's memory is accessed.
class TensorKinds {
 public:
  explicit TensorKinds(const nb::list& tensors) {
    for (const nb::handle tensor : tensors) kinds_.push_back(kind_of(tensor));
  }

  [[nodiscard]] bool match(const nb::list& tensors) const {
    return holds([&] {
      if (tensors.size() != kinds_.size()) return false;
      for (std::size_t i = 0; i < kinds_.size(); ++i) {
        if (!matches(kinds_[i], tensors[i])) return false;
      }
      return true;
    });
  }

 private:
  struct Kind {
    nb::object type;
    nb::object dtype;
    nb::object layout;
    nb::object device;  // none: in host memory
  };

  static Kind kind_of(nb::handle tensor) {
    const bool on_host = truth(attribute(tensor, tensor_names().is_cpu));
    return {.type = nb::borrow(tensor.type()),
            .dtype = attribute(tensor, tensor_names().dtype),
            .layout = attribute(tensor, tensor_names().layout),
            .device = on_host ? nb::none() : attribute(tensor, tensor_names().device)};
  }

  static bool matches(const Kind& kind, nb::handle tensor) {
    if (!tensor.type().is(kind.type)) return false;
    const bool on_host = truth(attribute(tensor, tensor_names().is_cpu));
    return attribute(tensor, tensor_names().dtype).is(kind.dtype) &&
           attribute(tensor, tensor_names().layout).is(kind.layout) &&
           (on_host ? kind.device.is_none()
                    : equal(attribute(tensor, tensor_names().device), kind.device));
  }

  std::vector<Kind> kinds_;
};

// Several dicts, as Contents knows them.
class DictContents {
 public:
  explicit DictContents(const nb::list& dicts) {
    for (const nb::handle each : dicts) contents_.add(each);
  }

  // The values of all dicts, one after the other; None unless they have the same contents.
  [[nodiscard]] nb::object values_if_in(const nb::list& dicts) const {
    nb::list values;  // made first: it may wake the collector, which may run code of Python's
    if (dicts.size() != contents_.dict_count()) return nb::none();
    for (std::size_t i = 0; i < dicts.size(); ++i) {
      if (!contents_.is_in(dicts[i], i)) return nb::none();
    }
    for (PyObject* each : contents_.values()) values.append(nb::handle(each));
    return values;
  }

 private:
  Contents contents_;
};

}  // namespace

void bind_recall(nb::module_& module) {
  nb::class_<TensorKinds>(module, "TensorKinds")
      .def(nb::init<const nb::list&>(), "tensors"_a)
      .def("match", &TensorKinds::match, "tensors"_a);
  nb::class_<DictContents>(module, "Contents")
      .def(nb::init<const nb::list&>(), "dicts"_a)
      .def("values_if_in", &DictContents::values_if_in, "dicts"_a);
}

}  // namespace deepfreeze::python

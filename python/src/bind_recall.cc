// Compares a state with its form at the last save, without a frame of Python for each tensor.
// Everything here is called with the GIL.
#include <nanobind/nanobind.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "dlpack_exchange.h"
#include "errors.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace deepfreeze::python {
namespace {

// Attributes of tensors, interned once; they live as long as the interpreter.
struct Names {
  PyObject* dtype = PyUnicode_InternFromString("dtype");
  PyObject* layout = PyUnicode_InternFromString("layout");
  PyObject* device = PyUnicode_InternFromString("device");
  PyObject* is_cpu = PyUnicode_InternFromString("is_cpu");
};

const Names& names() {
  static const Names found;
  return found;
}

nb::object checked(PyObject* made) {
  if (made == nullptr) nb::raise_python_error();
  return nb::steal(made);
}

nb::object attribute(nb::handle object, PyObject* name) {
  return checked(PyObject_GetAttr(object.ptr(), name));
}

// `method`: as its class has it, which spares looking it up for each of thousands.
nb::object call(const nb::object& method, nb::handle object) {
  PyObject* self = object.ptr();
  return checked(PyObject_Vectorcall(method.ptr(), &self, 1, nullptr));
}

bool truth(const nb::object& value) { return value.ptr() == Py_True; }

std::uint64_t number(const nb::object& value) {
  const std::uint64_t found = PyLong_AsUnsignedLongLong(value.ptr());
  if (found == static_cast<std::uint64_t>(-1) && PyErr_Occurred() != nullptr) {
    nb::raise_python_error();
  }
  return found;
}

bool equal(nb::handle one, nb::handle other) {
  const int same = PyObject_RichCompareBool(one.ptr(), other.ptr(), Py_EQ);
  if (same < 0) nb::raise_python_error();
  return same == 1;
}

// An exception from an attribute counts as a "no": the tensor may have no memory, for instance.
template <class Question>
bool holds(Question question) {
  try {
    return question();
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_Exception)) throw;
    return false;
  }
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
    const bool on_host = truth(attribute(tensor, names().is_cpu));
    return {.type = nb::borrow(tensor.type()),
            .dtype = attribute(tensor, names().dtype),
            .layout = attribute(tensor, names().layout),
            .device = on_host ? nb::none() : attribute(tensor, names().device)};
  }

  static bool matches(const Kind& kind, nb::handle tensor) {
    if (!tensor.type().is(kind.type)) return false;
    const bool on_host = truth(attribute(tensor, names().is_cpu));
    return attribute(tensor, names().dtype).is(kind.dtype) &&
           attribute(tensor, names().layout).is(kind.layout) &&
           (on_host ? kind.device.is_none()
                    : equal(attribute(tensor, names().device), kind.device));
  }

  std::vector<Kind> kinds_;
};

// The place and form of each tensor's elements in host memory. A tensor that still matches has not
// changed its kind either.
class RollCall {
 public:
  explicit RollCall(const nb::list& tensors)
      : tensor_(nb::module_::import_("torch").attr("Tensor")),
        nbytes_(nb::module_::import_("torch").attr("UntypedStorage").attr("nbytes")) {
    for (const nb::handle tensor : tensors) places_.push_back(place_of(tensor));
  }

  // Returns the tensors' storages if all lie in their old places, else none.
  [[nodiscard]] nb::object answer(const nb::list& tensors) const {
    nb::list storages;
    const bool all = holds([&] {
      if (tensors.size() != places_.size()) return false;
      for (std::size_t i = 0; i < places_.size(); ++i) {
        const nb::handle tensor = tensors[i];
        if (!tensor.type().is(places_[i].type) || !lies_at(places_[i], tensor)) return false;
        nb::object storage = call(tensor_.untyped_storage, tensor);
        if (number(call(nbytes_, storage)) != places_[i].storage_bytes) return false;
        storages.append(std::move(storage));
      }
      return true;
    });
    return all ? nb::object(storages) : nb::none();
  }

 private:
  struct Methods {
    explicit Methods(const nb::object& type)
        : exchange(dlpack_exchange_of(type)),
          is_neg(type.attr("is_neg")),
          is_conj(type.attr("is_conj")),
          untyped_storage(type.attr("untyped_storage")) {
      if (exchange == nullptr) throw nb::type_error("a torch without DLPack's C exchange");
    }
    const DLPackExchange* exchange;
    nb::object is_neg, is_conj, untyped_storage;
  };
  struct Place {
    nb::handle type;  // torch's own, which outlive this
    const void* data = nullptr;
    DLDevice device{};
    DLDataType dtype{};
    std::uint64_t storage_bytes = 0;
    std::vector<std::int64_t> steps;  // shape, then strides
    bool is_lazy = false;             // a negation or conjugate that is not carried out yet
  };

  [[nodiscard]] DLTensor look_at(nb::handle tensor) const {
    DLTensor found{};
    if (tensor_.exchange->tensor_from_object(tensor.ptr(), &found) != 0) nb::raise_python_error();
    return found;
  }

  [[nodiscard]] bool is_lazy(nb::handle tensor, const DLDataType& dtype) const {
    return truth(call(tensor_.is_neg, tensor)) ||
           (dtype.code == kDLComplex && truth(call(tensor_.is_conj, tensor)));
  }

  [[nodiscard]] Place place_of(nb::handle tensor) const {
    const DLTensor found = look_at(tensor);
    Place place{
        .type = tensor.type(), .data = found.data, .device = found.device, .dtype = found.dtype};
    place.steps.assign(found.shape, found.shape + found.ndim);
    place.steps.insert(place.steps.end(), found.strides, found.strides + found.ndim);
    place.storage_bytes = number(call(nbytes_, call(tensor_.untyped_storage, tensor)));
    place.is_lazy = is_lazy(tensor, found.dtype);
    return place;
  }

  [[nodiscard]] bool lies_at(const Place& place, nb::handle tensor) const {
    const DLTensor found = look_at(tensor);
    const std::span steps(place.steps);
    const auto ndim = static_cast<std::size_t>(found.ndim);
    return found.data == place.data && found.device == place.device && found.dtype == place.dtype &&
           2 * ndim == steps.size() &&
           std::ranges::equal(std::span(found.shape, ndim), steps.first(ndim)) &&
           std::ranges::equal(std::span(found.strides, ndim), steps.last(ndim)) &&
           is_lazy(tensor, found.dtype) == place.is_lazy;
  }

  Methods tensor_;
  nb::object nbytes_;
  std::vector<Place> places_;
};

// The contents of several dicts: which keys map to which objects, by identity.
class Contents {
 public:
  explicit Contents(const nb::list& dicts) {
    for (const nb::handle each : dicts) add(each);
  }

  // Whether these dicts have the same keys, in the same order, for the same values. A new object
  // with the address of an old one passes: it is in the old one's place.
  [[nodiscard]] bool are_in(const nb::list& dicts) const {
    if (!is_known_ || dicts.size() != sizes_.size()) return false;
    std::size_t begin = 0;
    for (std::size_t i = 0; i < sizes_.size(); ++i) {
      if (!is_in(dicts[i], begin, sizes_[i])) return false;
      begin += sizes_[i];
    }
    return true;
  }

 private:
  void add(nb::handle dict) {
    PyObject* key = nullptr;
    PyObject* value = nullptr;
    Py_ssize_t at = 0;
    std::size_t count = 0;
    for (; PyDict_Next(dict.ptr(), &at, &key, &value) != 0; ++count) {
      if (!PyUnicode_CheckExact(key)) {  // it may compare as it likes, and is not ours to keep
        is_known_ = false;
        return;
      }
      keys_.push_back(nb::borrow(key));
      values_.push_back(value);
    }
    sizes_.push_back(count);
  }

  [[nodiscard]] bool is_in(nb::handle dict, std::size_t begin, std::size_t count) const {
    // The order of another kind of dict may not be that in which it is walked here.
    if (!PyDict_CheckExact(dict.ptr()) ||
        static_cast<std::size_t>(PyDict_Size(dict.ptr())) != count) {
      return false;
    }
    PyObject* key = nullptr;
    PyObject* value = nullptr;
    Py_ssize_t at = 0;
    for (std::size_t i = begin; PyDict_Next(dict.ptr(), &at, &key, &value) != 0; ++i) {
      if (value != values_[i] || !is_key(keys_[i], key)) return false;
    }
    return true;
  }

  // Nothing of Python's may run while a dict is walked, so only strings are compared by value.
  static bool is_key(nb::handle known, PyObject* key) {
    if (known.ptr() == key) return true;
    return PyUnicode_CheckExact(key) != 0 && PyUnicode_Compare(known.ptr(), key) == 0;
  }

  bool is_known_ = true;  // strings are its keys
  std::vector<std::size_t> sizes_;
  std::vector<nb::object> keys_;
  std::vector<PyObject*> values_;  // compared, never looked at: they may be gone
};

}  // namespace

void bind_recall(nb::module_& module) {
  nb::class_<TensorKinds>(module, "TensorKinds")
      .def(nb::init<const nb::list&>(), "tensors"_a)
      .def("match", &TensorKinds::match, "tensors"_a);
  nb::class_<RollCall>(module, "RollCall")
      .def(nb::init<const nb::list&>(), "tensors"_a)
      .def("answer", &RollCall::answer, "tensors"_a);
  nb::class_<Contents>(module, "Contents")
      .def(nb::init<const nb::list&>(), "dicts"_a)
      .def("are_in", &Contents::are_in, "dicts"_a);
}

}  // namespace deepfreeze::python

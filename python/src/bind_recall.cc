// Compares a state with its form at the last save, without a frame of Python for each tensor.
// Everything here is called with the GIL.
#include <nanobind/nanobind.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "contents.h"
#include "dlpack_exchange.h"
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

// The place and form of each tensor's elements in host memory. A tensor that still matches has not
// changed its kind either.
class RollCall {
  static constexpr std::size_t kObjectsAhead = 12;
  static constexpr std::size_t kPlacesAhead = 8;
  static constexpr std::size_t kLineBytes = 64;
  static constexpr std::size_t kLinesOfPart = 3;

 public:
  explicit RollCall(const nb::list& tensors)
      : tensor_(nb::module_::import_("torch").attr("Tensor")),
        nbytes_(nb::module_::import_("torch").attr("UntypedStorage").attr("nbytes")) {
    for (const nb::handle tensor : tensors) note(tensor);
  }

  // Returns the tensors' storages if all lie in their old places, else none.
  [[nodiscard]] nb::object answer(const nb::list& tensors) const {
    nb::list storages;
    const bool all = holds([&] {
      if (tensors.size() != places_.size()) return false;
      for (std::size_t i = 0; i < places_.size(); ++i) {
        fetch_ahead(tensors, i);
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
  struct Place {      // one cache line
    nb::handle type;  // torch's own, which outlive this
    const void* data = nullptr;
    std::uint64_t storage_bytes = 0;
    std::array<const char*, 2> parts{};  // the tensor and its storage, in C++: only to be fetched
    DLDevice device{};
    DLDataType dtype{};
    std::uint32_t steps = 0;  // index of its shape, which its strides follow
    std::int32_t ndim = 0;
    bool is_lazy = false;  // a negation or conjugate that is not carried out yet
  };

  // A state's tensors are cold after a step of training, and lie all over the memory.
  void fetch_ahead(const nb::list& tensors, std::size_t i) const {
    if (i + kObjectsAhead < places_.size()) {
      __builtin_prefetch(nb::handle(tensors[i + kObjectsAhead]).ptr());
    }
    if (i + kPlacesAhead < places_.size()) {
      for (const char* part : places_[i + kPlacesAhead].parts) {
        for (std::size_t line = 0; line < kLinesOfPart; ++line) {
          __builtin_prefetch(part + line * kLineBytes);
        }
      }
    }
  }

  // By torch's own attribute for it; null if it has none.
  static const char* address_in_cpp(nb::handle object) {
    if (PyObject_HasAttrString(object.ptr(), "_cdata") == 0) return nullptr;
    return reinterpret_cast<const char*>(number(object.attr("_cdata")));
  }

  [[nodiscard]] DLTensor look_at(nb::handle tensor) const {
    DLTensor found{};
    if (tensor_.exchange->tensor_from_object(tensor.ptr(), &found) != 0) nb::raise_python_error();
    return found;
  }

  [[nodiscard]] bool is_lazy(nb::handle tensor, const DLDataType& dtype) const {
    return truth(call(tensor_.is_neg, tensor)) ||
           (dtype.code == kDLComplex && truth(call(tensor_.is_conj, tensor)));
  }

  void note(nb::handle tensor) {
    const DLTensor found = look_at(tensor);
    const nb::object storage = call(tensor_.untyped_storage, tensor);
    places_.push_back({.type = tensor.type(),
                       .data = found.data,
                       .storage_bytes = number(call(nbytes_, storage)),
                       .parts = {address_in_cpp(tensor), address_in_cpp(storage)},
                       .device = found.device,
                       .dtype = found.dtype,
                       .steps = static_cast<std::uint32_t>(steps_.size()),
                       .ndim = found.ndim,
                       .is_lazy = is_lazy(tensor, found.dtype)});
    steps_.insert(steps_.end(), found.shape, found.shape + found.ndim);
    steps_.insert(steps_.end(), found.strides, found.strides + found.ndim);
  }

  [[nodiscard]] bool lies_at(const Place& place, nb::handle tensor) const {
    const DLTensor found = look_at(tensor);
    if (found.ndim != place.ndim) return false;
    const auto ndim = static_cast<std::size_t>(place.ndim);
    const auto steps = std::span(steps_).subspan(place.steps, 2 * ndim);
    return found.data == place.data && found.device == place.device && found.dtype == place.dtype &&
           std::ranges::equal(std::span(found.shape, ndim), steps.first(ndim)) &&
           std::ranges::equal(std::span(found.strides, ndim), steps.last(ndim)) &&
           is_lazy(tensor, found.dtype) == place.is_lazy;
  }

  Methods tensor_;
  nb::object nbytes_;
  std::vector<Place> places_;
  std::vector<std::int64_t> steps_;
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
  nb::class_<RollCall>(module, "RollCall")
      .def(nb::init<const nb::list&>(), "tensors"_a)
      .def("answer", &RollCall::answer, "tensors"_a);
  nb::class_<DictContents>(module, "Contents")
      .def(nb::init<const nb::list&>(), "dicts"_a)
      .def("values_if_in", &DictContents::values_if_in, "dicts"_a);
}

}  // namespace deepfreeze::python

// Follows the values that guards own, and the version counters of tensors that are copied later.
#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "errors.h"
#include "python_calls.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace deepfreeze::python {
namespace {

struct WatchNames {
  PyObject* version = PyUnicode_InternFromString("_version");
  PyObject* data_ptr = PyUnicode_InternFromString("data_ptr");
};

// Interned once; they live as long as the interpreter.
const WatchNames& watch_names() {
  static const WatchNames found;
  return found;
}

nb::object call_method(nb::handle object, PyObject* name) {
  PyObject* self = object.ptr();
  return checked(PyObject_VectorcallMethod(name, &self, 1, nullptr));
}

// Versions and addresses of tensors. It refers to no tensor, so that Python's collector sees all
// references. Raises the exception of a tensor that has none.
class Versions {
 public:
  explicit Versions(const nb::list& tensors) : recorded_(now(tensors)) {}

  // The record of as many tensors, which the caller knows to be unmoved.
  [[nodiscard]] Versions again(const nb::list& tensors) const {
    if (tensors.size() != recorded_.size()) throw nb::value_error("another number of tensors");
    Versions next(*this);
    for (std::size_t i = 0; i < next.recorded_.size(); ++i) {
      next.recorded_[i].number = number(attribute(tensors[i], watch_names().version));
    }
    return next;
  }

  // The places of tensors that were written or moved since then.
  [[nodiscard]] nb::list changed(const nb::list& tensors) const {
    const std::vector<Version> found = now(tensors);
    nb::list places;
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (i >= recorded_.size() || found[i] != recorded_[i]) places.append(i);
    }
    return places;
  }

  [[nodiscard]] nb::list recorded() const {
    nb::list pairs;
    for (const Version& each : recorded_) pairs.append(nb::make_tuple(each.number, each.address));
    return pairs;
  }

 private:
  struct Version {
    std::uint64_t number = 0;
    std::uint64_t address = 0;
    bool operator==(const Version&) const = default;
  };

  static std::vector<Version> now(const nb::list& tensors) {
    std::vector<Version> found;
    found.reserve(tensors.size());
    for (const nb::handle tensor : tensors) {
      found.push_back({.number = number(attribute(tensor, watch_names().version)),
                       .address = number(call_method(tensor, watch_names().data_ptr))});
    }
    return found;
  }

  std::vector<Version> recorded_;
};

// Values by identity: some are among the tensors of a capture, the others count by their address,
// so that one in the place of another that is gone is taken for it.
class Placed {
 public:
  Placed(const nb::list& values, const nb::list& tensors) {
    std::unordered_map<PyObject*, std::size_t> places;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      places.emplace(nb::handle(tensors[i]).ptr(), i);
    }
    for (const nb::handle value : values) {
      const auto found = places.find(value.ptr());
      known_.push_back(
          found == places.end()
              ? Value{.address = value.ptr(), .place = -1}
              : Value{.address = nullptr, .place = static_cast<Py_ssize_t>(found->second)});
    }
  }

  // Each value's place among the tensors; -1 if it is not one of them.
  [[nodiscard]] nb::list places() const {
    nb::list found;
    for (const Value& each : known_) found.append(each.place);
    return found;
  }

  [[nodiscard]] bool are(const nb::list& values, const nb::list& tensors) const {
    if (values.size() != known_.size()) return false;
    for (std::size_t i = 0; i < known_.size(); ++i) {
      const Value& known = known_[i];
      const PyObject* expected = known.address;
      if (known.place >= 0) {
        if (static_cast<std::size_t>(known.place) >= tensors.size()) return false;
        expected = NB_LIST_GET_ITEM(tensors.ptr(), known.place);
      }
      if (NB_LIST_GET_ITEM(values.ptr(), static_cast<Py_ssize_t>(i)) != expected) return false;
    }
    return true;
  }

 private:
  struct Value {
    const PyObject* address;  // compared, never looked at
    Py_ssize_t place;
  };
  std::vector<Value> known_;
};

// The places at which two lists of one length have different objects.
nb::list differing(const nb::list& one, const nb::list& other) {
  if (one.size() != other.size()) throw nb::value_error("lists of different lengths");
  nb::list places;
  for (std::size_t i = 0; i < one.size(); ++i) {
    if (!nb::handle(one[i]).is(nb::handle(other[i]))) places.append(i);
  }
  return places;
}

// Appends the values of Python's own dict, then its length and keys to `names`; false for any
// other.
bool take(nb::handle dict, nb::list& values, nb::list& names) {
  if (PyDict_CheckExact(dict.ptr()) == 0) return false;
  PyObject* key = nullptr;
  PyObject* value = nullptr;
  Py_ssize_t at = 0;
  names.append(PyDict_Size(dict.ptr()));
  while (PyDict_Next(dict.ptr(), &at, &key, &value) != 0) {
    values.append(nb::handle(value));
    names.append(nb::handle(key));
  }
  return true;
}

// The parameters of all groups and the values of all states; then each state's owner, its length
// and its names. None unless groups are lists, states are dicts, and all belong to Python itself:
// others are asked in Python. No code of Python's runs, so nothing changes meanwhile; the callers
// pause the collector.
nb::object objects_in(const nb::list& groups, nb::handle states) {
  nb::list values;
  nb::list owners;
  nb::list names;
  for (const nb::handle group : groups) {
    if (PyList_CheckExact(group.ptr()) == 0) return nb::none();
    values.extend(group);
  }
  const nb::object kind = nb::module_::import_("collections").attr("defaultdict");
  if (PyDict_CheckExact(states.ptr()) == 0 && !states.type().is(kind)) return nb::none();
  PyObject* owner = nullptr;
  PyObject* state = nullptr;
  Py_ssize_t at = 0;
  while (PyDict_Next(states.ptr(), &at, &owner, &state) != 0) {
    owners.append(nb::handle(owner));
    if (!take(state, values, names)) return nb::none();
  }
  values.extend(owners);
  values.extend(names);
  return values;
}

}  // namespace

void bind_watch(nb::module_& module) {
  nb::class_<Versions>(module, "Versions")
      .def(nb::init<const nb::list&>(), "tensors"_a)
      .def("again", &Versions::again, "tensors"_a)
      .def("changed", &Versions::changed, "tensors"_a)
      .def("recorded", &Versions::recorded);
  nb::class_<Placed>(module, "Placed")
      .def(nb::init<const nb::list&, const nb::list&>(), "values"_a, "tensors"_a)
      .def("places", &Placed::places)
      .def("are", &Placed::are, "values"_a, "tensors"_a);
  module.def("differing", &differing, "one"_a, "other"_a);
  module.def("objects_in", &objects_in, "groups"_a, "states"_a);
}

}  // namespace deepfreeze::python

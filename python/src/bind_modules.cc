// Recognises a tree of torch's modules by the objects that it is made of.
#include <nanobind/nanobind.h>

#include <array>
#include <cstddef>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "contents.h"
#include "errors.h"
#include "python_calls.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace deepfreeze::python {
namespace {

constexpr std::size_t kDicts = 3;  // of a module: parameters, buffers, modules

struct ModuleNames {
  std::array<PyObject*, kDicts> dicts = {PyUnicode_InternFromString("_parameters"),
                                         PyUnicode_InternFromString("_buffers"),
                                         PyUnicode_InternFromString("_modules")};
  std::array<PyObject*, 2> hooks = {PyUnicode_InternFromString("_state_dict_hooks"),
                                    PyUnicode_InternFromString("_state_dict_pre_hooks")};
  PyObject* left_out = PyUnicode_InternFromString("_non_persistent_buffers_set");
};

// Interned once; they live as long as the interpreter.
const ModuleNames& module_names() {
  static const ModuleNames found;
  return found;
}

// A module's attributes, without running any code of its class.
nb::object own_attributes(PyObject* module) {
  return checked(PyObject_GenericGetDict(module, nullptr));
}

// Borrowed; null if it has none of that name.
PyObject* attribute_named(const nb::object& attributes, PyObject* name) {
  PyObject* found = PyDict_GetItemWithError(attributes.ptr(), name);
  if (found == nullptr && PyErr_Occurred() != nullptr) nb::raise_python_error();
  return found;
}

nb::object copy_of_set(PyObject* set) {
  return set == nullptr ? nb::none() : checked(PyFrozenSet_New(set));
}

// A module and all modules in it, each once, in the order in which modules() gives them.
class Modules {
 public:
  // `methods`: names of class attributes that decide a module's state, unless the module has an
  // attribute of that name itself.
  Modules(const nb::list& modules, const nb::list& methods) {
    for (const nb::handle name : methods) methods_.push_back(nb::borrow(name));
    std::unordered_set<PyObject*> reached;
    for (const nb::handle each : modules) add(each, reached);
  }

  // Chooses the values that values_if_same() gives. False if the modules lack one of them.
  [[nodiscard]] bool choose(const nb::list& values) {
    std::unordered_map<PyObject*, std::size_t> places;
    for (std::size_t i = 0; i < contents_.values().size(); ++i) {
      places.emplace(contents_.values()[i], i);
    }
    chosen_.clear();
    for (const nb::handle value : values) {
      const auto place = places.find(value.ptr());
      if (place == places.end()) return false;
      chosen_.push_back(place->second);
    }
    return true;
  }

  // The types of all modules, if they consist of the same objects as before; else None.
  [[nodiscard]] nb::object kinds_if_same(nb::handle root) const {
    nb::object kinds = nb::none();
    const bool same = holds([&] {
      Live live;
      if (!look_at(root, live)) return false;
      kinds = set_of(live.types);
      return true;
    });
    return same ? kinds : nb::none();
  }

  // The values in the chosen places, and the types of all modules. None as above, or if anything
  // but methods of the types makes up the state: a hook, an attribute in a method's place, or other
  // buffers that are left out.
  [[nodiscard]] nb::object values_if_same(nb::handle root) const {
    nb::list values;
    nb::object kinds = nb::none();
    const bool same = holds([&] {
      Live live{.plainly = true};
      if (!look_at(root, live)) return false;
      for (const std::size_t place : chosen_) values.append(nb::handle(contents_.values()[place]));
      // From here on code of Python's may run.
      for (std::size_t i = 0; i < modules_.size(); ++i) {
        if (!equal(live.left_out[i], modules_[i].left_out)) return false;
      }
      kinds = set_of(live.types);
      return true;
    });
    return same ? nb::object(nb::make_tuple(values, kinds)) : nb::none();
  }

 private:
  struct Module {
    PyObject* object;  // these two are compared only: they may be gone
    PyTypeObject* type;
    nb::object left_out;  // names of buffers that are no state; None: it has no such set
  };

  // `reached`: modules that an earlier one has. Only they are sure to be alive when it is their
  // turn.
  void add(nb::handle module, std::unordered_set<PyObject*>& reached) {
    const bool is_reached = modules_.empty() || reached.contains(module.ptr());
    const nb::object attributes = is_reached ? own_attributes(module.ptr()) : nb::dict();
    for (PyObject* name : module_names().dicts) {
      PyObject* dict = attribute_named(attributes, name);
      contents_.add(dict == nullptr ? Py_None : dict);  // None is no dict, so nothing is known
    }
    PyObject* children = attribute_named(attributes, module_names().dicts.back());
    if (contents_.is_known()) {
      for (const nb::handle child : nb::borrow<nb::dict>(children).values()) {
        reached.insert(child.ptr());
      }
    }
    modules_.push_back(
        {.object = module.ptr(),
         .type = Py_TYPE(module.ptr()),
         .left_out = copy_of_set(attribute_named(attributes, module_names().left_out))});
  }

  // Objects that a look at the modules finds. Their own code may run once all modules are seen.
  struct Live {
    bool plainly = false;              // nothing but methods of the types may make up the state
    std::vector<nb::object> types;     // each at least once
    std::vector<nb::object> left_out;  // of each module, if plainly
  };

  // Runs no code of Python's, so that modules in a dict that was compared are alive. The callers
  // pause the collector, which Python 3.11 may wake for the dict of a module's attributes.
  [[nodiscard]] bool look_at(nb::handle root, Live& live) const {
    if (modules_.empty() || modules_.front().object != root.ptr()) return false;
    for (std::size_t i = 0; i < modules_.size(); ++i) {
      const Module& known = modules_[i];
      if (Py_TYPE(known.object) != known.type) return false;
      const nb::object attributes = own_attributes(known.object);
      for (std::size_t d = 0; d < kDicts; ++d) {
        PyObject* dict = attribute_named(attributes, module_names().dicts[d]);
        if (dict == nullptr || !contents_.is_in(dict, i * kDicts + d)) return false;
      }
      if (live.plainly && !is_plain(known, attributes, live)) return false;
      if (i == 0 || modules_[i - 1].type != known.type) {
        live.types.push_back(nb::borrow(reinterpret_cast<PyObject*>(known.type)));
      }
    }
    return true;
  }

  [[nodiscard]] bool is_plain(const Module& known, const nb::object& attributes, Live& live) const {
    for (PyObject* name : module_names().hooks) {
      PyObject* hooks = attribute_named(attributes, name);
      if (hooks == nullptr || PyDict_Check(hooks) == 0 || PyDict_Size(hooks) != 0) return false;
    }
    for (const nb::object& method : methods_) {
      if (attribute_named(attributes, method.ptr()) != nullptr) return false;
    }
    PyObject* left_out = attribute_named(attributes, module_names().left_out);
    if (left_out == nullptr || PySet_Check(left_out) == 0 || known.left_out.is_none()) return false;
    if (PySet_Size(left_out) != PySet_Size(known.left_out.ptr())) return false;
    live.left_out.push_back(nb::borrow(left_out));
    return true;
  }

  // Calls each type's __hash__(), which a metaclass may define.
  static nb::object set_of(const std::vector<nb::object>& types) {
    nb::set found;
    for (const nb::object& type : types) found.add(type);
    return found;
  }

  std::vector<nb::object> methods_;
  std::vector<Module> modules_;
  std::vector<std::size_t> chosen_;  // places among the values of contents_
  Contents contents_;
};

}  // namespace

void bind_modules(nb::module_& module) {
  nb::class_<Modules>(module, "Modules")
      .def(nb::init<const nb::list&, const nb::list&>(), "modules"_a, "methods"_a)
      .def("choose", &Modules::choose, "values"_a)
      .def("kinds_if_same", &Modules::kinds_if_same, "module"_a)
      .def("values_if_same", &Modules::values_if_same, "module"_a);
}

}  // namespace deepfreeze::python

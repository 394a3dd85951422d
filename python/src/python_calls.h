// Questions to Python's objects, without a frame of Python for each. Call with the GIL.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>

namespace deepfreeze::python {

inline nanobind::object checked(PyObject* made) {
  if (made == nullptr) nanobind::raise_python_error();
  return nanobind::steal(made);
}

inline nanobind::object attribute(nanobind::handle object, PyObject* name) {
  return checked(PyObject_GetAttr(object.ptr(), name));
}

// `method`: the function of its class, so that thousands of calls need one look-up.
inline nanobind::object call(const nanobind::object& method, nanobind::handle object) {
  PyObject* self = object.ptr();
  return checked(PyObject_Vectorcall(method.ptr(), &self, 1, nullptr));
}

inline bool truth(const nanobind::object& value) { return value.ptr() == Py_True; }

inline std::uint64_t number(const nanobind::object& value) {
  const std::uint64_t found = PyLong_AsUnsignedLongLong(value.ptr());
  if (found == static_cast<std::uint64_t>(-1) && PyErr_Occurred() != nullptr) {
    nanobind::raise_python_error();
  }
  return found;
}

inline bool equal(nanobind::handle one, nanobind::handle other) {
  const int same = PyObject_RichCompareBool(one.ptr(), other.ptr(), Py_EQ);
  if (same < 0) nanobind::raise_python_error();
  return same == 1;
}

// An exception of Python counts as a "no": a tensor may have no memory, for instance.
template <class Question>
bool holds(Question question) {
  try {
    return question();
  } catch (nanobind::python_error& error) {
    if (!error.matches(PyExc_Exception)) throw;
    return false;
  }
}

}  // namespace deepfreeze::python

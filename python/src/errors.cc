#include "errors.h"

#include <nanobind/stl/string.h>

#include <optional>
#include <string>
#include <utility>

namespace nb = nanobind;

namespace deepfreeze::python {
namespace {

// Set once, by the package, at import. A plain handle: it must not be released by a static
// destructor after the interpreter ended.
nb::handle error_factory;

thread_local std::optional<nb::python_error> kept;

}  // namespace

nb::str text_of(std::string_view bytes) {
  return nb::steal<nb::str>(PyUnicode_DecodeUTF8(
      bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "backslashreplace"));
}

nb::object make_exception(const Error& error) {
  if (!error_factory.is_valid()) return nb::borrow(PyExc_RuntimeError)(text_of(error.message()));
  return error_factory(std::string(to_string(error.code())), text_of(error.message()));
}

void raise(const Error& error) {
  const nb::object exception = make_exception(error);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
  throw nb::python_error();
}

void keep_until_return(const nb::python_error& raised) {
  if (!kept) kept.emplace(raised);
}

void raise_kept() {
  if (auto due = std::exchange(kept, std::nullopt)) throw nb::python_error(*std::move(due));
}

void bind_errors(nb::module_& module) {
  module.def("set_error_factory", [](nb::object make) { error_factory = make.release(); });
}

// Another signal may come while its text is made.
std::string description_of(const nb::python_error& raised) {
  try {
    return std::string(nb::str(raised.type().attr("__name__")).c_str()) + ": " +
           nb::str(raised.value()).c_str();
  } catch (const nb::python_error& another) {
    if (!another.matches(PyExc_Exception)) keep_until_return(another);
    return "an exception without a text";
  }
}

}  // namespace deepfreeze::python

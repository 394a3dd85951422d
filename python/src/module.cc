#include <nanobind/nanobind.h>

#include "deepfreeze/version.h"
#include "errors.h"

namespace nb = nanobind;

NB_MODULE(_core, module) {
  // torch keeps some hooks, and all that they refer to, beyond the interpreter's end.
  nb::set_leak_warnings(false);
  module.attr("FORMAT_VERSION") = deepfreeze::kFormatVersion;
  deepfreeze::python::bind_errors(module);
  deepfreeze::python::bind_checkpoint(module);
  deepfreeze::python::bind_best(module);
  deepfreeze::python::bind_engine(module);
  deepfreeze::python::bind_modules(module);
  deepfreeze::python::bind_recall(module);
  deepfreeze::python::bind_roll_call(module);
  deepfreeze::python::bind_sums(module);
  deepfreeze::python::bind_watch(module);
}

// Core errors become Python exceptions. With the GIL held.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <string_view>

#include "deepfreeze/result.h"

namespace deepfreeze::python {

// Converts a text of the core, which may contain paths that are not UTF-8: such bytes are escaped.
[[nodiscard]] nanobind::str text_of(std::string_view bytes);

// The exception that the package's factory makes of an error.
[[nodiscard]] nanobind::object make_exception(const Error& error);

[[noreturn]] void raise(const Error& error);

template <class T>
T unwrap(Result<T> result) {
  if (!result) raise(result.error());
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

// Keeps an exception that ends more than the current call, such as an interrupt or SystemExit, for
// which the core has no error. A callback of this thread keeps it; it is raised once the core has
// returned.
void keep_until_return(const nanobind::python_error& raised);
// Its type and its text, in one line.
[[nodiscard]] std::string description_of(const nanobind::python_error& raised);
void raise_kept();

// Runs `call` without the GIL, then unwraps its result with it.
template <class Call>
auto without_gil(Call call) {
  auto result = [&call] {
    const nanobind::gil_scoped_release released;
    return call();
  }();
  raise_kept();
  return unwrap(std::move(result));
}

void bind_errors(nanobind::module_& module);
void bind_best(nanobind::module_& module);
void bind_checkpoint(nanobind::module_& module);
void bind_engine(nanobind::module_& module);
void bind_modules(nanobind::module_& module);
void bind_recall(nanobind::module_& module);
void bind_roll_call(nanobind::module_& module);
void bind_sums(nanobind::module_& module);
void bind_watch(nanobind::module_& module);

}  // namespace deepfreeze::python

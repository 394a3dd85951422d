#include "python_keys.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <memory>
#include <tuple>
#include <utility>

#include "errors.h"

namespace nb = nanobind;

namespace deepfreeze::python {
namespace {

using KeysForm = std::tuple<std::string, std::string, std::string, std::optional<double>>;

ObjectKeys keys_of(KeysForm form) {
  auto& [access_key, secret_key, session_token, expires] = form;
  ObjectKeys keys{.access_key = std::move(access_key),
                  .secret_key = std::move(secret_key),
                  .session_token = std::move(session_token)};
  if (expires) {
    const std::chrono::duration<double> since(*expires);
    keys.expires = std::chrono::system_clock::time_point(
        std::chrono::duration_cast<std::chrono::system_clock::duration>(since));
  }
  return keys;
}

Result<ObjectKeys> ask_for_keys(const nb::object& ask) {
  // A thread that a file system or a store did not let go may still be there.
  if (!nb::is_alive()) return std::unexpected(Error(ErrorCode::kCancelled, "Python has ended"));
  const nb::gil_scoped_acquire held;
  try {
    return keys_of(nb::cast<KeysForm>(ask()));
  } catch (const nb::python_error& raised) {
    // A mistake of the program does not pass.
    const bool is_wrong = raised.matches(PyExc_TypeError) || raised.matches(PyExc_ValueError);
    return std::unexpected(Error(is_wrong ? ErrorCode::kInvalidArgument : ErrorCode::kIo,
                                 "credentials(): " + description_of(raised)));
  } catch (const std::exception& cause) {  // it returned something else
    return std::unexpected(Error(ErrorCode::kIo, std::string("credentials(): ") + cause.what()));
  }
}

}  // namespace

KeySource make_keys(nb::object ask) {
  if (ask.is_none()) return {};
  const auto forget = [](nb::object* owned) {
    if (!nb::is_alive()) return;  // with the interpreter the object has gone
    const nb::gil_scoped_acquire held;
    std::default_delete<nb::object>()(owned);
  };
  // Other holders: the copies of the function.
  const std::shared_ptr<nb::object> shared(std::make_unique<nb::object>(std::move(ask)).release(),
                                           forget);
  return [shared] { return ask_for_keys(*shared); };
}

}  // namespace deepfreeze::python

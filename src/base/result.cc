#include "deepfreeze/result.h"

#include <array>
#include <utility>

#include "base/shortened.h"

namespace deepfreeze {

Error::Error(ErrorCode code, std::string message, int os_errno)
    : code_(code), os_errno_(os_errno), message_(shortened(std::move(message))) {}

std::string_view to_string(ErrorCode code) {
  static constexpr std::array<std::string_view, 17> kNames = {
      "invalid_argument", "not_found", "exists",  "corrupt",   "incomplete",   "gone",
      "no_space",         "mismatch",  "encode",  "fenced",    "torn_capture", "io",
      "unsupported",      "busy",      "timeout", "cancelled", "internal"};
  return kNames.at(static_cast<std::size_t>(code));
}

}  // namespace deepfreeze

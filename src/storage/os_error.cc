#include "storage/os_error.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>

#include "base/try.h"

namespace deepfreeze {

ErrorCode code_of_errno(int os_errno) {
  switch (os_errno) {
    case ENOSPC:
    case EDQUOT:
      return ErrorCode::kNoSpace;
    case ENOENT:
      return ErrorCode::kNotFound;
    case EEXIST:
      return ErrorCode::kExists;
    default:
      return ErrorCode::kIo;
  }
}

bool is_refusal(const Error& error) {
  constexpr std::array kRefusals = {EACCES, EPERM, EMFILE, ENFILE, ENOMEM};
  return std::ranges::find(kRefusals, error.os_errno()) != kRefusals.end();
}

bool may_have_good_copy(const Error& error) {
  switch (error.code()) {
    case ErrorCode::kCorrupt:
    case ErrorCode::kIncomplete:
    case ErrorCode::kGone:
    case ErrorCode::kNotFound:
    case ErrorCode::kMismatch:
      return false;
    case ErrorCode::kIo:
      return is_refusal(error);
    default:
      return true;
  }
}

std::unexpected<Error> os_fail(std::string_view operation, std::string_view place, int os_errno) {
  const std::string cause = std::generic_category().message(os_errno);
  return fail(code_of_errno(os_errno), fmt::format("{} {}: {}", operation, place, cause), os_errno);
}

}  // namespace deepfreeze

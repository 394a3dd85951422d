// The code of a result's error; nothing if it succeeded.
#pragma once

#include <optional>

#include "deepfreeze/result.h"

namespace deepfreeze {

template <class T>
[[nodiscard]] std::optional<ErrorCode> code_of(const Result<T>& result) {
  if (result) return std::nullopt;
  return result.error().code();
}

}  // namespace deepfreeze

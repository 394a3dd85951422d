// Carries errors up (g++ 12's std::expected has no and_then).
#pragma once

#include <utility>

#include "deepfreeze/result.h"

#define DF_CONCAT_INNER(a, b) a##b
#define DF_CONCAT(a, b) DF_CONCAT_INNER(a, b)

// DF_TRY(auto file, vfs.create(name)): declares `file`, or returns the error.
#define DF_TRY(declaration, ...)                                                \
  auto DF_CONCAT(df_result_, __LINE__) = (__VA_ARGS__);                         \
  if (!DF_CONCAT(df_result_, __LINE__)) [[unlikely]]                            \
    return std::unexpected(std::move(DF_CONCAT(df_result_, __LINE__)).error()); \
  declaration = std::move(*DF_CONCAT(df_result_, __LINE__))

// DF_TRY_VOID(file.sync()): returns the error, if there is one.
#define DF_TRY_VOID(...)                                       \
  if (auto df_status = (__VA_ARGS__); !df_status) [[unlikely]] \
  return std::unexpected(std::move(df_status).error())

namespace deepfreeze {

// return fail(ErrorCode::kCorrupt, "...");
[[nodiscard]] inline std::unexpected<Error> fail(ErrorCode code, std::string message,
                                                 int os_errno = 0) {
  return std::unexpected(Error(code, std::move(message), os_errno));
}

}  // namespace deepfreeze

// The program of a profile that prints keys. Any thread.
#pragma once

#include <chrono>
#include <optional>
#include <string_view>
#include <vector>

#include "base/secret.h"
#include "deepfreeze/result.h"

namespace deepfreeze {

inline constexpr std::chrono::milliseconds kCredentialProcessMax{60'000};

// Runs it without a shell and returns its output, up to kKeysAnswerBytesMax. It has this
// process's environment, nothing to read, and nobody sees its errors. It is killed, with those that
// it has started and that are still in its group, after `deadline`. Messages name no part of the
// command, which may hold secrets. kInvalidArgument; kTimeout; kIo: it failed.
[[nodiscard]] Result<Secret> run_credential_process(
    std::string_view command, std::chrono::milliseconds deadline = kCredentialProcessMax);

// Its words, separated by blanks, which quotes and backslashes keep as in a shell; nothing else is
// special. None if a quote is not closed.
[[nodiscard]] std::optional<std::vector<Secret>> split_command(std::string_view command);

}  // namespace deepfreeze

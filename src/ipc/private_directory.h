// A directory for this user's sockets. Any thread.
#pragma once

#include <filesystem>

#include "base/unique_fd.h"
#include "deepfreeze/result.h"

namespace deepfreeze {

// $DEEPFREEZE_AGENT_DIR; else $XDG_RUNTIME_DIR/deepfreeze; else deepfreeze-<uid> in the directory
// for temporary files ($TMPDIR if it is there, or /tmp).
[[nodiscard]] std::filesystem::path default_agent_directory();

// Makes it with mode 0700, or accepts it as it is. kUnsupported if it is a link, or belongs to
// another user, or others may enter it: a process that can put a socket there would be given the
// memory of a training.
[[nodiscard]] Status make_private_directory(const std::filesystem::path& path);

// The lock of this file, which is made if it is not there, until the descriptor is closed. kExists
// if another process has it.
[[nodiscard]] Result<UniqueFd> lock_file(const std::filesystem::path& path);

// A socket's name that nobody listens at any more. Best effort.
void remove_name(const std::filesystem::path& path);

}  // namespace deepfreeze

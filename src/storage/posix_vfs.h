// The Vfs over real files: openat2(RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS) below one directory, or
// openat(O_NOFOLLOW) component by component if a sandbox forbids that call.
#pragma once

#include <filesystem>
#include <memory>

#include "storage/vfs.h"

namespace deepfreeze {

// The root must exist and be a directory; kNotFound otherwise. Symbolic links on the way to the
// root are the caller's choice and are followed, none below it.
[[nodiscard]] Result<std::unique_ptr<Vfs>> open_posix_vfs(const std::filesystem::path& root);

// The absolute path that `path` means now: a relative one is taken from the current directory,
// which the program may change later. Links and ".." in it stay. kInvalidArgument for an empty
// path.
[[nodiscard]] Result<std::filesystem::path> absolute_path(const std::filesystem::path& path);

// mkdir -p, and every directory made has its parent fsynced (step 0 of the commit protocol).
// Directories that are there already are taken as durable.
[[nodiscard]] Status make_durable_directories(const std::filesystem::path& root);

}  // namespace deepfreeze

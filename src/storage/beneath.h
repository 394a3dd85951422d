// Opens names below a directory without following any symbolic link or leaving it.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/unique_fd.h"

namespace deepfreeze {

// New files and directories have these modes; the process's umask narrows them: a group that shares
// a run sets 002.
inline constexpr mode_t kFileMode = 0666;
inline constexpr mode_t kDirectoryMode = 0777;

struct BeneathOpen {
  int root_fd;
  const std::string& name;  // accepted by check_vfs_name, or empty for the root itself
  int flags;                // O_CLOEXEC is added
  mode_t mode = 0;          // with O_CREAT
};

// An invalid UniqueFd, with errno set, if the kernel refuses; ELOOP for a symbolic link.
[[nodiscard]] UniqueFd open_beneath(const BeneathOpen& open);

}  // namespace deepfreeze

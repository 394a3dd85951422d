// Reads a directory of the kernel.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "base/unique_fd.h"
#include "storage/vfs.h"

namespace deepfreeze {

// Sorted by name, without "." and ".."; `path` is for messages. A symbolic link counts as a file.
[[nodiscard]] Result<std::vector<DirEntry>> list_directory(UniqueFd directory,
                                                           std::string_view path);
// The directory that the path names, of any name: for a search for runs.
[[nodiscard]] Result<std::vector<DirEntry>> list_directory(const std::filesystem::path& path);

}  // namespace deepfreeze

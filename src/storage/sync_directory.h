// The one way to make a directory's entries durable, for all code that does so.
#pragma once

#include <string_view>

#include "deepfreeze/result.h"

namespace deepfreeze {

// Makes every creation, renaming and removal in the directory `fd` survive a power cut. `path` is
// for the error.
[[nodiscard]] Status sync_directory(int fd, std::string_view path);

}  // namespace deepfreeze

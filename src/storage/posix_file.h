// One open file of the kernel, as a File.
#pragma once

#include <memory>
#include <string>

#include "base/unique_fd.h"
#include "storage/vfs.h"

namespace deepfreeze {

// `path` is for messages. If the file system refuses direct access, the file is buffered.
[[nodiscard]] std::unique_ptr<File> make_posix_file(UniqueFd fd, std::string path, Access wanted);

}  // namespace deepfreeze

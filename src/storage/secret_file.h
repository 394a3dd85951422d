// A small file of the user's that holds secrets; it is none of a run. Any thread.
#pragma once

#include <cstddef>
#include <string>

#include "base/secret.h"
#include "deepfreeze/result.h"

namespace deepfreeze {

// All that the file holds. kNotFound: there is none, or none for this user. kInvalidArgument: it
// has more than `bytes_max` bytes, is not a file, or can't be read. It never waits for a writer.
[[nodiscard]] Result<Secret> read_secret_file(const std::string& path, std::size_t bytes_max);

}  // namespace deepfreeze

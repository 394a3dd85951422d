// The plain bytes of a packed file.
#pragma once

#include <memory>
#include <string>

#include "deepfreeze/result.h"
#include "format/packed_file.h"
#include "storage/vfs.h"

namespace deepfreeze {

// `stored` is the packed file, of which `lead` is the beginning; `path` is for messages. Reads of
// several threads run side by side.
[[nodiscard]] Result<std::unique_ptr<File>> open_packed_file(std::unique_ptr<File> stored,
                                                             const PackedLead& lead,
                                                             std::string path);

}  // namespace deepfreeze

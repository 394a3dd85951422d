// Opens a sealed data file, plain or packed. Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "deepfreeze/result.h"
#include "storage/vfs.h"

namespace deepfreeze {

// Size and bytes are those of the plain file, whichever lies there. A packed file reads the stored
// bytes of the wanted blocks only; kCorrupt if they do not unpack, kUnsupported without libzstd or
// if a newer version wrote it. A file that has `plain_bytes` bytes is plain, and is not looked at
// here.
[[nodiscard]] Result<std::unique_ptr<File>> open_part(
    Vfs& vfs, std::string_view name, Access access,
    std::optional<std::uint64_t> plain_bytes = std::nullopt);

}  // namespace deepfreeze

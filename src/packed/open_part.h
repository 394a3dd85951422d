// Opens a sealed data file: plain, packed, or a reference to either. Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "deepfreeze/result.h"
#include "storage/vfs.h"

namespace deepfreeze {

// Size and bytes are those of the plain file, whichever lies there. A packed file reads the stored
// bytes of the wanted blocks only; kCorrupt if they do not unpack, or if the file that a reference
// names is missing; kUnsupported without libzstd or if a newer version wrote it. A file that has
// `plain_bytes` bytes is plain, and is not looked at here. `name` is below the run's root.
[[nodiscard]] Result<std::unique_ptr<File>> open_part(
    Vfs& vfs, std::string_view name, Access access,
    std::optional<std::uint64_t> plain_bytes = std::nullopt);

// The file's name below the run's root, if `name` is a reference to it. Errors as above.
[[nodiscard]] Result<std::optional<std::string>> referred_file(Vfs& vfs, std::string_view name);

}  // namespace deepfreeze

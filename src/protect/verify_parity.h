// Reads a parity file whole, and checks it against its own header. Blocking; any thread.
#pragma once

#include <string>

#include "format/records.h"
#include "storage/vfs.h"

namespace deepfreeze {

// `path` is in the run. kCorrupt: the header does not verify, or is of another checkpoint, or a
// block does not verify; the message names it. Other codes are those of reading.
[[nodiscard]] Status verify_parity(Vfs& vfs, const std::string& path, const Manifest& manifest);

}  // namespace deepfreeze

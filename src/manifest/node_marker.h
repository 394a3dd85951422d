// The digits of a near directory, and the proof that two processes see the same one: a directory
// that was copied to another machine has its digits, too. Stateless; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "format/node_record.h"
#include "storage/vfs.h"

namespace deepfreeze {

// The directory's own record; the first caller makes it, durably. kCorrupt if it does not verify:
// nobody may replace it, because claims name its digits.
[[nodiscard]] Result<NodeRecord> find_or_make_node(Vfs& vfs, const std::string& host);

// The file by which one process of a node shows itself to the others, which know the nonce.
// Removed by the same process; one that was left behind is an old temporary file (debris.h).
[[nodiscard]] Status show_presence(Vfs& vfs, std::uint64_t nonce);
[[nodiscard]] Result<bool> sees_presence(Vfs& vfs, std::uint64_t nonce);
[[nodiscard]] Status hide_presence(Vfs& vfs, std::uint64_t nonce);

}  // namespace deepfreeze

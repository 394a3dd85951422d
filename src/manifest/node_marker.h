// The digits of a near directory among the nodes of a job (decision 0026), and the proof that two
// processes see the same one: a directory that was copied to another machine has its digits, too.
// Stateless; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "format/node_record.h"
#include "manifest/run_directory.h"
#include "storage/vfs.h"

namespace deepfreeze {

// The directory's own record. kNotFound; kCorrupt if it does not verify.
[[nodiscard]] Result<NodeRecord> read_node(Vfs& vfs);

// Tells whether it is there, for a listing. kUnsupported if it is of a newer format.
[[nodiscard]] Result<std::optional<NodeMarker>> find_node_marker(Vfs& vfs);

// The directory's own record; the first caller makes it, durably. kCorrupt if it does not verify:
// nobody may replace it, because claims name its digits.
[[nodiscard]] Result<NodeRecord> find_or_make_node(Vfs& vfs, const std::string& host);

// The file by which one process of a node shows itself to the others, which know the nonce.
// Removed by the same process; one that was left behind is an old temporary file (debris.h).
[[nodiscard]] Status show_presence(Vfs& vfs, std::uint64_t nonce);
[[nodiscard]] Result<bool> sees_presence(Vfs& vfs, std::uint64_t nonce);
[[nodiscard]] Status hide_presence(Vfs& vfs, std::uint64_t nonce);

}  // namespace deepfreeze

// Recognises a directory that torch.distributed.checkpoint saved to a deepfreeze:// id. It consists
// of small runs, which the Python package reads as one checkpoint (python/deepfreeze/looking).
#pragma once

#include <string>
#include <vector>

namespace deepfreeze {

// An id's directory, or one that holds such directories. `text` as on the command line: with or
// without deepfreeze:// and "@STEP". Read-only.
[[nodiscard]] bool is_dcp_folder(const std::string& text);

// Whether the Python package does this: a verb that looks at checkpoints, on such a directory.
[[nodiscard]] bool is_of_dcp(const std::vector<std::string>& words);

}  // namespace deepfreeze

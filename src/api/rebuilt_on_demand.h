// The files of lost nodes, calculated from those of all others. Any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "format/records.h"
#include "storage/vfs.h"

namespace deepfreeze {

// `near`: this node's directory; `others`: the other nodes' files; `parity`: the names of the
// checkpoint's parity files, wherever they lie. Nothing is read before a file is wanted, for that
// reads the headers of all nodes. Errors as those of open_rebuilt_files().
[[nodiscard]] std::unique_ptr<Vfs> rebuild_on_demand(std::string near, std::unique_ptr<Vfs> others,
                                                     Manifest manifest,
                                                     std::vector<std::string> parity);

}  // namespace deepfreeze

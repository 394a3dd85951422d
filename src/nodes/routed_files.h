// The files of one checkpoint that lie on other nodes, as one Vfs: each file is read from a node
// that has it. Any thread, as the nodes' own.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "storage/vfs.h"

namespace deepfreeze {

// For each path in the run, the nodes' files in the order in which they are tried; none is empty.
using FileRoutes = std::map<std::string, std::vector<Vfs*>, std::less<>>;

// Borrows the nodes' files. kNotFound for every path without a route: no node is asked.
[[nodiscard]] std::unique_ptr<Vfs> route_files(FileRoutes routes);

}  // namespace deepfreeze

// deepfreeze ls TREE: the runs below a directory, a line for each.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cli/console.h"
#include "cli/selection.h"
#include "inspect/catalogue.h"

namespace deepfreeze {

void list_tree(const std::string& tree, const std::vector<std::filesystem::path>& runs,
               const Selection& selection, UseIndex use, Console& console);

}  // namespace deepfreeze

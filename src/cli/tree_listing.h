// deepfreeze ls TREE: the runs below a directory, a line for each.
#pragma once

#include <string>
#include <vector>

#include "cli/console.h"
#include "cli/selection.h"
#include "inspect/catalogue.h"

namespace deepfreeze {

void list_tree(const std::string& tree, const std::vector<CatalogueRow>& rows,
               const Selection& selection, Console& console);

}  // namespace deepfreeze

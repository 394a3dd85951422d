#include "deepfreeze/checkpointer.h"
#include "manifest/find_runs.h"

namespace deepfreeze {

Result<std::vector<std::filesystem::path>> list_runs(const std::filesystem::path& tree) {
  return find_runs(tree);
}

}  // namespace deepfreeze

#include "restore/opened_run.h"

#include <utility>

#include "base/try.h"
#include "object/open_object.h"

namespace deepfreeze {

Result<OpenedRun> open_run(const std::string& path) {
  DF_TRY(auto vfs, open_vfs(path));
  DF_TRY(RunListing listing, read_run(*vfs));
  return OpenedRun{.path = path, .vfs = std::move(vfs), .listing = std::move(listing)};
}

}  // namespace deepfreeze

#include "nodes/routed_files.h"

#include <optional>
#include <utility>

#include "storage/os_error.h"
#include "storage/read_only.h"

namespace deepfreeze {
namespace {

class RoutedFiles final : public ReadOnlyVfs {
 public:
  explicit RoutedFiles(FileRoutes routes) : routes_(std::move(routes)) {}

  Result<std::unique_ptr<File>> open_read(std::string_view name, Access access) override {
    Result<std::unique_ptr<File>> file =
        fail(ErrorCode::kNotFound, fmt::format("open {}: no other node has it", name));
    const auto route = routes_.find(name);
    if (route == routes_.end()) return file;
    std::optional<Error> open;  // of a node that may have it
    for (Vfs* node : route->second) {
      file = node->open_read(name, access);
      if (file) return file;
      if (may_have_good_copy(file.error())) open = file.error();
    }
    if (open) return std::unexpected(*open);
    return file;
  }
  Result<std::vector<DirEntry>> list(std::string_view name) override {
    return refused("list", name);
  }
  // A directory's path is that of the node that has most likely the most of it: the first.
  [[nodiscard]] std::string path_of(std::string_view name) const override {
    const auto route = routes_.lower_bound(name);
    if (route == routes_.end() || !route->first.starts_with(name)) return std::string(name);
    return route->second.front()->path_of(name);
  }

 private:
  const FileRoutes routes_;
};

}  // namespace

std::unique_ptr<Vfs> route_files(FileRoutes routes) {
  return std::make_unique<RoutedFiles>(std::move(routes));
}

}  // namespace deepfreeze

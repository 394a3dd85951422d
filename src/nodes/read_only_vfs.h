// A Vfs whose files are only read: every call that would change something is refused.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/try.h"
#include "storage/vfs.h"

namespace deepfreeze {

class ReadOnlyVfs : public Vfs {
 public:
  Result<std::unique_ptr<File>> create(std::string_view name, Access /*access*/) final {
    return refused("create", name);
  }
  Status make_dir(std::string_view name) final { return refused("mkdir", name); }
  Status rename_no_replace(std::string_view from, std::string_view /*to*/) final {
    return refused("rename", from);
  }
  Status rename_replacing(std::string_view from, std::string_view /*to*/) final {
    return refused("rename", from);
  }
  Status remove_file(std::string_view name) final { return refused("remove", name); }
  Status remove_dir(std::string_view name) final { return refused("remove", name); }
  Status sync_dir(std::string_view name) final { return refused("sync directory", name); }
  // A node's leader sends it in other messages.
  Result<std::vector<DirEntry>> list(std::string_view name) final { return refused("list", name); }
  Status make_root() final { return refused("mkdir", ""); }
  Status check_writable() final { return refused("write in", ""); }

 private:
  [[nodiscard]] std::unexpected<Error> refused(std::string_view operation,
                                               std::string_view name) const {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{} {}: another node's files are only read", operation, path_of(name)));
  }
};

}  // namespace deepfreeze

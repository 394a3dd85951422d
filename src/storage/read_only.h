// A Vfs and a File that are only read: every call that would change something is refused.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <string>
#include <string_view>

#include "base/try.h"
#include "deepfreeze/result.h"
#include "storage/vfs.h"

namespace deepfreeze {

class ReadOnlyFile : public File {
 public:
  Status write_at(std::uint64_t /*offset*/, std::span<const std::byte> /*bytes*/) final {
    return refused("write");
  }
  Status preallocate(std::uint64_t /*bytes*/) final { return refused("preallocate"); }
  Status truncate(std::uint64_t /*bytes*/) final { return refused("truncate"); }
  Status sync() final { return refused("sync"); }
  Status close() override { return {}; }
  [[nodiscard]] Access access() const final { return Access::kBuffered; }

 protected:
  [[nodiscard]] virtual std::string path() const = 0;  // for messages

 private:
  [[nodiscard]] std::unexpected<Error> refused(std::string_view operation) const {
    return fail(ErrorCode::kUnsupported, fmt::format("{} {}: it is only read", operation, path()));
  }
};

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
  Status make_root() final { return refused("mkdir", ""); }
  Status check_writable() final { return refused("write in", ""); }

 protected:
  [[nodiscard]] std::unexpected<Error> refused(std::string_view operation,
                                               std::string_view name) const {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{} {}: these files are only read", operation, path_of(name)));
  }
};

}  // namespace deepfreeze

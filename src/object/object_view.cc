// The objects of a place as files. A file is looked at when it is opened, and read by ranges.
#include <fmt/format.h>

#include <algorithm>

#include "base/try.h"
#include "codec/crc32c.h"
#include "object/object_look.h"
#include "object/object_tier.h"
#include "storage/read_only.h"
#include "storage/vfs_name.h"

namespace deepfreeze {
namespace {

class ObjectFile final : public ReadOnlyFile {
 public:
  ObjectFile(S3Client& client, std::string key, std::string path, const ObjectInfo& info)
      : client_(client), key_(std::move(key)), path_(std::move(path)), info_(info) {}

  Result<std::size_t> read_at(std::uint64_t offset, std::span<std::byte> into) override {
    if (offset >= info_.bytes) return 0;
    return client_.get(key_, offset, into.first(std::min(into.size(), info_.bytes - offset)));
  }
  Result<std::uint64_t> size() override { return info_.bytes; }
  [[nodiscard]] std::optional<std::uint32_t> kept_crc32c() const override { return info_.crc32c; }

 private:
  [[nodiscard]] std::string path() const override { return path_; }

  S3Client& client_;
  const std::string key_;
  const std::string path_;
  const ObjectInfo info_;
};

class ObjectView final : public Vfs {
 public:
  explicit ObjectView(std::shared_ptr<S3Client> client) : client_(std::move(client)) {}

  Result<std::unique_ptr<File>> create(std::string_view name, Access /*access*/) override {
    return fail(ErrorCode::kUnsupported,
                fmt::format("create {}: objects are put whole", path_of(name)));
  }
  Result<std::unique_ptr<File>> open_read(std::string_view name, Access access) override;
  Status make_dir(std::string_view name) override { return check_vfs_name("mkdir", name); }
  Status rename_no_replace(std::string_view from, std::string_view to) override {
    return rename(from, to, IfPresent::kRefuse);
  }
  Status rename_replacing(std::string_view from, std::string_view to) override {
    return rename(from, to, IfPresent::kReplace);
  }
  Status remove_file(std::string_view name) override {
    DF_TRY_VOID(check_vfs_name("remove", name));
    return client_->remove(name);
  }
  Status remove_dir(std::string_view name) override { return check_vfs_name("remove", name); }
  Status sync_dir(std::string_view /*name*/) override { return {}; }
  Result<std::vector<DirEntry>> list(std::string_view name) override;
  Result<std::unique_ptr<Vfs>> look() override { return look_at(*client_, small_, *this); }
  [[nodiscard]] std::string path_of(std::string_view name) const override {
    const std::string root = client_->place().url();
    return name.empty() ? root : fmt::format("{}/{}", root, name);
  }

 private:
  [[nodiscard]] Status rename(std::string_view from, std::string_view to, IfPresent if_present);

  const std::shared_ptr<S3Client> client_;  // others: the tier, and the opener of either
  SmallObjects small_;
};

Result<std::unique_ptr<File>> ObjectView::open_read(std::string_view name, Access /*access*/) {
  DF_TRY_VOID(check_vfs_name("open", name));
  DF_TRY(const ObjectInfo info, client_->head(name));
  return std::make_unique<ObjectFile>(*client_, std::string(name), path_of(name), info);
}

Result<std::vector<DirEntry>> ObjectView::list(std::string_view name) {
  if (!name.empty()) DF_TRY_VOID(check_vfs_name("list", name));
  const std::string prefix = name.empty() ? "" : fmt::format("{}/", name);
  DF_TRY(const Listing listing, client_->list(prefix, true));
  std::vector<DirEntry> entries;
  for (const ListedObject& object : listing.objects) {
    if (object.key == prefix) continue;  // some programs put an empty object for a directory
    entries.push_back({.name = object.key.substr(prefix.size()), .is_directory = false});
  }
  for (const std::string& directory : listing.directories) {
    entries.push_back({.name = directory.substr(prefix.size()), .is_directory = true});
  }
  if (!entries.empty() || name.empty()) return entries;
  return fail(ErrorCode::kNotFound, fmt::format("list {}: no key begins with it", path_of(name)));
}

Status ObjectView::rename(std::string_view from, std::string_view to, IfPresent if_present) {
  DF_TRY_VOID(check_vfs_name("rename", from));
  DF_TRY_VOID(check_vfs_name("rename", to));
  DF_TRY(const ObjectInfo info, client_->head(from));
  if (info.bytes > kPartBytes) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("rename {}: it is too large to be copied", path_of(from)));
  }
  std::vector<std::byte> bytes(info.bytes);
  DF_TRY(const std::size_t count, client_->get(from, 0, bytes));
  const std::uint32_t crc = crc32c(bytes);
  if (count != bytes.size() || (info.crc32c && *info.crc32c != crc)) {
    return fail(ErrorCode::kIo, fmt::format("rename {}: it was read wrongly", path_of(from)));
  }
  const Status put = client_->put(to, bytes, crc, if_present);
  if (!put && put.error().code() != ErrorCode::kExists) return put;
  if (!put) {  // perhaps by another process that renames it, or that died in the middle of it
    DF_TRY(const ObjectInfo there, client_->head(to));
    if (there.bytes != bytes.size() || there.crc32c != crc) return put;
  }
  return client_->remove(from);
}

}  // namespace

std::unique_ptr<Vfs> make_object_view(std::shared_ptr<S3Client> client) {
  return std::make_unique<ObjectView>(std::move(client));
}

}  // namespace deepfreeze

#include "object/object_look.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "base/try.h"
#include "storage/read_only.h"
#include "storage/vfs_name.h"

namespace deepfreeze {
namespace {

class TextFile final : public ReadOnlyFile {
 public:
  TextFile(std::string path, std::string text) : path_(std::move(path)), text_(std::move(text)) {}
  Result<std::size_t> read_at(std::uint64_t offset, std::span<std::byte> into) override {
    if (offset >= text_.size()) return 0;
    const std::size_t count = std::min<std::size_t>(into.size(), text_.size() - offset);
    std::memcpy(into.data(), text_.data() + offset, count);
    return count;
  }
  Result<std::uint64_t> size() override { return text_.size(); }

 private:
  [[nodiscard]] std::string path() const override { return path_; }

  const std::string path_;
  const std::string text_;
};

class ObjectLook final : public ReadOnlyVfs {
 public:
  ObjectLook(S3Client& client, SmallObjects& small, Vfs& view, const Listing& listing);

  Result<std::unique_ptr<File>> open_read(std::string_view name, Access access) override;
  Result<std::vector<DirEntry>> list(std::string_view name) override;
  [[nodiscard]] std::string path_of(std::string_view name) const override {
    return view_.path_of(name);
  }

 private:
  [[nodiscard]] Result<std::string> text_of(const ListedObject& object);

  S3Client& client_;
  SmallObjects& small_;
  Vfs& view_;
  std::map<std::string, ListedObject, std::less<>> objects_;           // by key
  std::map<std::string, std::vector<DirEntry>, std::less<>> entries_;  // by directory
};

ObjectLook::ObjectLook(S3Client& client, SmallObjects& small, Vfs& view, const Listing& listing)
    : client_(client), small_(small), view_(view), entries_{{"", {}}} {
  std::set<std::string, std::less<>> directories;
  for (const ListedObject& object : listing.objects) {
    if (object.key.ends_with('/')) continue;  // some programs put one for a directory
    std::string_view name = object.key;
    bool is_directory = false;
    // Each directory above a key is an entry of the one above it, once.
    while (true) {
      const std::size_t slash = name.rfind('/');
      const std::string_view parent = slash == std::string_view::npos ? "" : name.substr(0, slash);
      const std::string_view last = slash == std::string_view::npos ? name : name.substr(slash + 1);
      if (is_directory && !directories.emplace(name).second) break;
      entries_[std::string(parent)].push_back({std::string(last), is_directory});
      if (parent.empty()) break;
      name = parent;
      is_directory = true;
    }
    objects_.emplace(object.key, object);
  }
}

Result<std::vector<DirEntry>> ObjectLook::list(std::string_view name) {
  const auto found = entries_.find(name);
  if (found != entries_.end()) return found->second;
  return fail(ErrorCode::kNotFound, fmt::format("list {}: no key begins with it", path_of(name)));
}

Result<std::unique_ptr<File>> ObjectLook::open_read(std::string_view name, Access access) {
  DF_TRY_VOID(check_vfs_name("open", name));
  const auto found = objects_.find(name);
  if (found == objects_.end()) {
    return fail(ErrorCode::kNotFound, fmt::format("open {}: there is no such key", path_of(name)));
  }
  if (found->second.bytes > kSmallObjectBytesMax) return view_.open_read(name, access);
  DF_TRY(std::string text, text_of(found->second));
  return std::make_unique<TextFile>(path_of(name), std::move(text));
}

Result<std::string> ObjectLook::text_of(const ListedObject& object) {
  if (auto kept = small_.find(object.key, object.etag)) return *std::move(kept);
  DF_TRY(std::string text, client_.get_whole(object.key, object.bytes));
  if (!object.etag.empty()) small_.keep(object.key, object.etag, text);
  return text;
}

}  // namespace

std::optional<std::string> SmallObjects::find(const std::string& key, const std::string& etag) {
  const std::lock_guard lock(mutex_);
  const auto found = kept_.find(key);
  if (found == kept_.end() || found->second.etag != etag) return std::nullopt;
  return found->second.text;
}

void SmallObjects::keep(const std::string& key, const std::string& etag, const std::string& text) {
  const std::lock_guard lock(mutex_);
  if (const auto before = kept_.find(key); before != kept_.end()) {
    bytes_ -= before->second.text.size();
    kept_.erase(before);
  }
  if (bytes_ + text.size() > kSmallObjectsBytesMax) {
    kept_.clear();
    bytes_ = 0;
  }
  bytes_ += text.size();
  kept_.emplace(key, Kept{.etag = etag, .text = text});
}

Result<std::unique_ptr<Vfs>> look_at(S3Client& client, SmallObjects& small, Vfs& view) {
  DF_TRY(const Listing listing, client.list("", false));
  return std::make_unique<ObjectLook>(client, small, view, listing);
}

}  // namespace deepfreeze

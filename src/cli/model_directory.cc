// 1. Everything is written into a directory of another name beside it.
// 2. That one is renamed: over nothing, or over an empty directory.
#include "cli/model_directory.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <map>
#include <memory>
#include <system_error>
#include <tuple>
#include <utility>

#include "base/hex.h"
#include "base/random_id.h"
#include "base/try.h"
#include "cli/exported_file.h"
#include "cli/new_file.h"
#include "json/json_writer.h"
#include "storage/os_error.h"
#include "storage/posix_vfs.h"

namespace deepfreeze {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 4> kCopied = {".json", ".txt", ".model", ".jinja"};
constexpr std::string_view kConfig = "config.json";
constexpr std::string_view kIndex = "model.safetensors.index.json";
constexpr std::string_view kIndexEnd = ".index.json";  // of other weights
constexpr std::string_view kTrainerState = "trainer_state.json";
constexpr std::uint64_t kCopiedBytesMax = 256 * 1024 * 1024;  // tokenizers have some tens of MB

// A directory that its destructor removes with its files, unless it got another name.
class TemporaryDirectory {
 public:
  // Made beside `place`.
  static Result<TemporaryDirectory> make(const fs::path& place) {
    const fs::path parent = place.has_parent_path() ? place.parent_path() : fs::path(".");
    DF_TRY(auto vfs, open_posix_vfs(parent));
    std::string name = fmt::format("{}.{}.tmp", place.filename().string(), hex64(random_id()));
    DF_TRY_VOID(vfs->make_dir(name));
    return TemporaryDirectory(std::move(vfs), std::move(name));
  }
  TemporaryDirectory(TemporaryDirectory&& other) noexcept
      : parent_(std::move(other.parent_)), name_(std::exchange(other.name_, {})) {}
  TemporaryDirectory& operator=(TemporaryDirectory&&) = delete;
  ~TemporaryDirectory() {
    if (!name_.empty()) remove_all();
  }

  [[nodiscard]] std::string file(std::string_view name) const {
    return fmt::format("{}/{}", parent_->path_of(name_), name);
  }
  // An empty directory of that name makes room.
  [[nodiscard]] Status rename_to(const std::string& place) {
    std::ignore = parent_->remove_dir(place);
    DF_TRY_VOID(parent_->rename_no_replace(name_, place));
    name_.clear();
    return parent_->sync_dir("");
  }

 private:
  TemporaryDirectory(std::unique_ptr<Vfs> parent, std::string name)
      : parent_(std::move(parent)), name_(std::move(name)) {}
  void remove_all() {
    const auto entries = parent_->list(name_);
    if (!entries) return;
    for (const DirEntry& entry : *entries) {
      std::ignore = parent_->remove_file(fmt::format("{}/{}", name_, entry.name));
    }
    std::ignore = parent_->remove_dir(name_);
  }

  std::unique_ptr<Vfs> parent_;
  std::string name_;
};

// "a/b/" means "a/b".
fs::path place_of(const std::string& path) {
  const fs::path place = fs::path(path).lexically_normal();
  return place.has_filename() ? place : place.parent_path();
}

Status check_is_free(const fs::path& place) {
  std::error_code error;
  const fs::file_status found = fs::symlink_status(place, error);
  if (found.type() == fs::file_type::not_found) return {};
  if (found.type() == fs::file_type::directory && fs::is_empty(place, error) && !error) return {};
  return fail(ErrorCode::kExists,
              fmt::format("export to {}: it exists, and is no empty directory; choose another name",
                          place.string()),
              EEXIST);
}

bool is_copied(const fs::directory_entry& entry) {
  const std::string name = entry.path().filename().string();
  std::error_code error;
  return std::ranges::any_of(kCopied, [&](std::string_view end) { return name.ends_with(end); }) &&
         !name.ends_with(kIndexEnd) && name != kTrainerState && entry.is_regular_file(error) &&
         entry.file_size(error) <= kCopiedBytesMax;
}

// Behind a symbolic link too, as caches of models have them.
Status copy_file(const fs::path& from, const std::string& to) {
  std::error_code error;
  const fs::path behind = fs::canonical(from, error);
  if (error) return os_fail("open", from.string(), error.value());
  DF_TRY(const auto vfs, open_posix_vfs(behind.parent_path()));
  DF_TRY(const std::string text, read_file(*vfs, behind.filename().string(), kCopiedBytesMax));
  DF_TRY(NewFile file, NewFile::create(to, false));
  DF_TRY_VOID(file.append(std::as_bytes(std::span(text))));
  return file.publish();
}

// The names of the copies.
Result<std::vector<std::string>> copy_config(const fs::path& config, const TemporaryDirectory& to) {
  std::vector<std::string> names;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(config, error)) {
    if (is_copied(entry)) names.push_back(entry.path().filename().string());
  }
  if (error) return os_fail("list", config.string(), error.value());
  std::ranges::sort(names);
  if (std::ranges::find(names, kConfig) == names.end()) {
    return fail(ErrorCode::kNotFound,
                fmt::format("--config {}: there is no {} in it", config.string(), kConfig));
  }
  for (const std::string& name : names) DF_TRY_VOID(copy_file(config / name, to.file(name)));
  return names;
}

// In the order of the checkpoint; a shard has one tensor at least.
Result<std::vector<std::vector<TensorSpec>>> shards_of(const ModelDirectory& model) {
  std::vector<std::vector<TensorSpec>> shards;
  std::uint64_t bytes = 0;
  for (const TensorSpec& spec : model.specs) {
    DF_TRY(const std::uint64_t more, spec_bytes(spec));
    if (shards.empty() ||
        (bytes > 0 && (more > model.shard_bytes || bytes > model.shard_bytes - more))) {
      shards.emplace_back();
      bytes = 0;
    }
    shards.back().push_back(spec);
    bytes += more;
  }
  return shards;
}

std::string shard_name(std::size_t index, std::size_t count) {
  if (count == 1) return "model.safetensors";
  return fmt::format("model-{:05}-of-{:05}.safetensors", index + 1, count);
}

Status write_index(const std::vector<std::vector<TensorSpec>>& shards, const ModelDirectory& model,
                   const std::string& path) {
  std::map<std::string, std::string> homes;
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    for (const TensorSpec& spec : shards[i]) {
      homes[spec.key.substr(model.prefix.size())] = shard_name(i, shards.size());
    }
    DF_TRY(const std::uint64_t more, data_bytes(shards[i]));
    bytes += more;
  }
  JsonWriter json(JsonWriter::Layout::kIndented);
  json.object("metadata", json_object("total_size", bytes), "weight_map", homes);
  const std::string text = json.text();
  DF_TRY(NewFile file, NewFile::create(path, false));
  DF_TRY_VOID(file.append(std::as_bytes(std::span(text))));
  return file.publish();
}

// Adds the names and bytes to `written`.
Status write_shards(const Snapshot& snapshot, const ModelDirectory& model,
                    const TemporaryDirectory& to, Progress& progress, WrittenModel& written) {
  DF_TRY(const auto shards, shards_of(model));
  std::uint64_t done = 0;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    written.files.push_back(shard_name(i, shards.size()));
    const ExportedFile file = {
        .path = to.file(written.files.back()), .specs = shards[i], .prefix = model.prefix};
    DF_TRY(const std::uint64_t bytes, export_file(snapshot, file, progress, done));
    DF_TRY(const std::uint64_t data, data_bytes(shards[i]));
    written.bytes += bytes;
    done += data;
  }
  if (shards.size() == 1) return {};
  written.files.emplace_back(kIndex);
  return write_index(shards, model, to.file(kIndex));
}

}  // namespace

Result<WrittenModel> write_model_directory(const Snapshot& snapshot, const ModelDirectory& model,
                                           Progress& progress) {
  const fs::path place = place_of(model.path);
  DF_TRY_VOID(check_is_free(place));
  DF_TRY(TemporaryDirectory made, TemporaryDirectory::make(place));
  WrittenModel written;
  if (!model.config.empty()) {
    DF_TRY(written.files, copy_config(model.config, made));
  }
  DF_TRY_VOID(write_shards(snapshot, model, made, progress, written));
  DF_TRY_VOID(made.rename_to(place.filename().string()));
  return written;
}

}  // namespace deepfreeze

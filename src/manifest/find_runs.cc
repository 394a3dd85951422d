#include "manifest/find_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "base/log.h"
#include "base/try.h"
#include "format/names.h"
#include "manifest/record_file.h"
#include "storage/directory_listing.h"

namespace deepfreeze {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kAttemptPrefix = "step-";

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::symlink_status(path, ignored).type() == fs::file_type::regular;
}

// One directory, as far as it can be read.
struct Looked {
  bool is_run = false;
  std::vector<std::string> folders = {};  // below it that may hold runs, sorted
};

// The kind of each entry is known from the listing, so that no attempt of a run is looked at.
Result<Looked> look_into(const fs::path& directory) {
  DF_TRY(std::vector<DirEntry> entries, list_directory(directory));
  Looked looked;
  looked.is_run = has_name(entries, kRunFile) && is_file(directory / kRunFile);
  for (DirEntry& entry : entries) {
    if (!entry.is_directory || entry.name.starts_with('.')) continue;
    if (!entry.name.starts_with(kAttemptPrefix)) {
      looked.folders.push_back(std::move(entry.name));
    } else if (!looked.is_run && parse_attempt_dir_name(entry.name)) {
      looked.is_run = is_file(directory / entry.name / kManifestFile);
    }
  }
  return looked;
}

// Removed, or replaced by a file, since its name was listed.
bool is_gone(const Error& error) {
  return error.code() == ErrorCode::kNotFound || error.os_errno() == ENOTDIR;
}

class Walk {
 public:
  Walk(const OnRun& on_run, const OnUnread& on_unread, std::size_t runs_max)
      : on_run_(on_run), on_unread_(on_unread), runs_max_(runs_max) {}

  // False: there are too many.
  bool visit(const fs::path& directory, const Looked& looked, int depth) {
    if (looked.is_run && ++count_ > runs_max_) return false;
    if (looked.is_run) on_run_(directory);
    if (depth == kRunsDepthMax) return true;
    return std::ranges::all_of(looked.folders, [&](const std::string& name) {
      const fs::path below = directory / name;
      const auto next = look_into(below);
      if (next) return visit(below, *next, depth + 1);
      if (is_gone(next.error())) return true;
      if (++count_ > runs_max_) return false;
      on_unread_(below, next.error());
      return true;
    });
  }

 private:
  const OnRun& on_run_;
  const OnUnread& on_unread_;
  std::size_t runs_max_;
  std::size_t count_ = 0;
};

}  // namespace

bool is_run_directory(const fs::path& directory) {
  const auto looked = look_into(directory);
  return looked && looked->is_run;
}

Status find_each_run(const fs::path& directory, const OnRun& on_run, const OnUnread& on_unread,
                     std::size_t runs_max) {
  const auto looked = look_into(directory);
  if (!looked && looked.error().os_errno() == ENOTDIR) {
    return fail(ErrorCode::kNotFound, looked.error().message(), ENOTDIR);
  }
  if (!looked) return std::unexpected(looked.error());
  if (Walk(on_run, on_unread, runs_max).visit(directory, *looked, 0)) return {};
  return fail(ErrorCode::kInvalidArgument, fmt::format("{}: more than {} runs; name a smaller tree",
                                                       directory.string(), runs_max));
}

Result<std::vector<fs::path>> find_runs(const fs::path& directory, std::size_t runs_max) {
  std::vector<fs::path> found;
  DF_TRY_VOID(find_each_run(
      directory, [&](const fs::path& run) { found.push_back(run); },
      [](const fs::path&, const Error& error) {
        log_warning(error.message() + ": runs below it are not found");
      },
      runs_max));
  return found;
}

}  // namespace deepfreeze

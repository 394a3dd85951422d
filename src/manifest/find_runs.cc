#include "manifest/find_runs.h"

#include <fmt/format.h>

#include <cerrno>
#include <system_error>
#include <utility>

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

// Stops behind one run too many.
void walk(const fs::path& directory, int depth, std::size_t runs_max,
          std::vector<fs::path>& found) {
  const auto looked = look_into(directory);
  if (!looked) return;  // not ours to read, or deleted meanwhile
  if (looked->is_run) found.push_back(directory);
  if (depth == kRunsDepthMax) return;
  for (const std::string& name : looked->folders) {
    if (found.size() > runs_max) return;
    walk(directory / name, depth + 1, runs_max, found);
  }
}

}  // namespace

bool is_run_directory(const fs::path& directory) {
  const auto looked = look_into(directory);
  return looked && looked->is_run;
}

Result<std::vector<fs::path>> find_runs(const fs::path& directory, std::size_t runs_max) {
  const auto looked = look_into(directory);
  if (!looked && looked.error().os_errno() == ENOTDIR) {
    return fail(ErrorCode::kNotFound, looked.error().message(), ENOTDIR);
  }
  if (!looked) return std::unexpected(looked.error());
  std::vector<fs::path> found;
  walk(directory, 0, runs_max, found);
  if (found.size() <= runs_max) return found;
  return fail(ErrorCode::kInvalidArgument, fmt::format("{}: more than {} runs; name a smaller tree",
                                                       directory.string(), runs_max));
}

}  // namespace deepfreeze

// Step 0 of the commit protocol: a directory exists after a power cut only if its parent was
// synced after it was made.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "base/try.h"
#include "base/unique_fd.h"
#include "storage/beneath.h"
#include "storage/os_error.h"
#include "storage/posix_vfs.h"
#include "storage/sync_directory.h"

namespace deepfreeze {
namespace {

Status sync_directory_at(const std::filesystem::path& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return os_fail("sync directory", path.string(), errno);
  return sync_directory(fd.get(), path.string());
}

// Another process may make it between the look and the mkdir; its name is synced here all the same.
Status make_if_missing(const std::filesystem::path& parent, const std::filesystem::path& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) == 0) {
    if (S_ISDIR(status.st_mode)) return {};
    return os_fail("mkdir", path.string(), ENOTDIR);
  }
  if (errno != ENOENT) return os_fail("mkdir", path.string(), errno);
  if (::mkdir(path.c_str(), kDirectoryMode) != 0 && errno != EEXIST) {
    return os_fail("mkdir", path.string(), errno);
  }
  return sync_directory_at(parent);
}

std::optional<dev_t> device_of(const std::filesystem::path& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0) return std::nullopt;
  return status.st_dev;
}

// Any of these directories may have been made just now by a process that died before its sync. The
// loop stops at a mount point: the directories above it do not hold the run. A directory that we
// may not open cannot be synced, which is no reason to refuse the run.
void sync_those_of_one_device(const std::vector<std::filesystem::path>& parents) {
  if (parents.empty()) return;
  const auto device = device_of(parents.back());
  for (auto parent = parents.rbegin(); parent != parents.rend(); ++parent) {
    if (device_of(*parent) != device) return;
    std::ignore = sync_directory_at(*parent);
  }
}

}  // namespace

Result<std::filesystem::path> absolute_path(const std::filesystem::path& path) {
  if (path.empty()) return fail(ErrorCode::kInvalidArgument, "the path of a run is empty");
  std::error_code cause;
  std::filesystem::path whole = std::filesystem::absolute(path, cause);
  if (!cause) return whole;
  return os_fail("look up the current directory, for the relative path", path.string(),
                 cause.value());
}

Status make_durable_directories(const std::filesystem::path& root) {
  std::vector<std::filesystem::path> parents;  // of each component
  std::filesystem::path parent = root.is_absolute() ? root.root_path() : ".";
  std::filesystem::path path = root.root_path();
  for (const auto& component : root.relative_path()) {
    if (component.empty()) continue;  // after a trailing slash
    path /= component;
    DF_TRY_VOID(make_if_missing(parent, path));
    parents.push_back(std::exchange(parent, path));
  }
  sync_those_of_one_device(parents);
  return {};
}

}  // namespace deepfreeze

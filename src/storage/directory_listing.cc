#include "storage/directory_listing.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <utility>

#include "base/try.h"
#include "storage/os_error.h"

namespace deepfreeze {
namespace {

struct CloseDir {
  void operator()(DIR* directory) const { ::closedir(directory); }
};
using OpenDir = std::unique_ptr<DIR, CloseDir>;

// fdopendir takes the descriptor over, so it gets one of its own.
OpenDir open_dir(const UniqueFd& fd) {
  const int own = ::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0);
  if (own < 0) return nullptr;
  OpenDir directory(::fdopendir(own));
  if (directory == nullptr) ::close(own);
  return directory;
}

// Some file systems do not report the type of an entry. Empty if the entry has gone since it was
// read; an entry that cannot be examined is an error, because it must not seem to be missing.
Result<std::optional<DirEntry>> describe(int directory_fd, const dirent& entry,
                                         std::string_view path) {
  DirEntry described = {.name = entry.d_name, .is_directory = entry.d_type == DT_DIR};
  if (entry.d_type != DT_UNKNOWN) return described;
  struct stat status = {};
  if (::fstatat(directory_fd, entry.d_name, &status, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == ENOENT) return std::nullopt;
    return os_fail("stat", fmt::format("{}/{}", path, described.name), errno);
  }
  described.is_directory = S_ISDIR(status.st_mode);
  return described;
}

}  // namespace

Result<std::vector<DirEntry>> list_directory(UniqueFd fd, std::string_view path) {
  const OpenDir directory = open_dir(fd);
  if (directory == nullptr) return os_fail("list", path, errno);
  std::vector<DirEntry> entries;
  while (true) {
    errno = 0;  // readdir's end and its failure look alike
    const dirent* entry = ::readdir(directory.get());
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name == "." || name == "..") continue;
    DF_TRY(auto described, describe(fd.get(), *entry, path));
    if (described) entries.push_back(*std::move(described));
  }
  if (errno != 0) return os_fail("list", path, errno);
  std::ranges::sort(entries, {}, &DirEntry::name);
  return entries;
}

Result<std::vector<DirEntry>> list_directory(const std::filesystem::path& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return os_fail("list", path.string(), errno);
  return list_directory(std::move(fd), path.string());
}

}  // namespace deepfreeze

#include "cli/new_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "base/hex.h"
#include "base/random_id.h"
#include "base/try.h"
#include "storage/os_error.h"
#include "storage/sync_directory.h"

namespace deepfreeze {
namespace {

// The process's umask narrows it.
constexpr mode_t kMode = 0666;

std::unexpected<Error> taken(const std::string& path) {
  return fail(ErrorCode::kExists, fmt::format("{} exists; --force replaces it", path), EEXIST);
}

Status sync_directory_of(const std::string& path) {
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  const std::string directory = parent.empty() ? std::string(".") : parent.string();
  UniqueFd fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return os_fail("open", directory, errno);
  DF_TRY_VOID(sync_directory(fd.get(), directory));
  return fd.close();
}

}  // namespace

NewFile::NewFile(std::string path, bool replace) : path_(std::move(path)), replace_(replace) {}

NewFile::NewFile(NewFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      replace_(other.replace_),
      fd_(std::move(other.fd_)) {}

NewFile::~NewFile() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

Result<NewFile> NewFile::create(const std::string& path, bool replace) {
  struct stat status{};
  if (!replace && ::lstat(path.c_str(), &status) == 0) return taken(path);
  NewFile file(path, replace);
  const std::string temporary = fmt::format("{}.{}.tmp", path, hex64(random_id()));
  file.fd_ = UniqueFd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kMode));
  if (!file.fd_.valid()) return os_fail("create", temporary, errno);
  file.temporary_ = temporary;
  return file;
}

Status NewFile::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(fd_.get(), bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return os_fail("write", temporary_, errno);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
  return {};
}

Status NewFile::rename_into_place() const {
  const unsigned flags = replace_ ? 0U : RENAME_NOREPLACE;
  if (::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, path_.c_str(), flags) == 0) return {};
  if (errno == EEXIST) return taken(path_);
  if (replace_ || errno != EINVAL) return os_fail("rename to", path_, errno);
  // Network file systems lack the flag; a hard link likewise fails if the name is taken.
  if (::link(temporary_.c_str(), path_.c_str()) != 0) {
    return errno == EEXIST ? Status(taken(path_)) : os_fail("link", path_, errno);
  }
  if (::unlink(temporary_.c_str()) != 0) return os_fail("remove", temporary_, errno);
  return {};
}

Status NewFile::publish() {
  if (::fsync(fd_.get()) != 0) return os_fail("sync", temporary_, errno);
  DF_TRY_VOID(fd_.close());
  DF_TRY_VOID(rename_into_place());
  temporary_.clear();
  return sync_directory_of(path_);
}

}  // namespace deepfreeze

#include "ipc/private_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <tuple>

#include "base/try.h"

namespace deepfreeze {
namespace {

constexpr mode_t kOwnerOnly = 0700;
constexpr mode_t kOthers = 0077;

const char* variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

}  // namespace

std::filesystem::path default_agent_directory() {
  if (const char* chosen = variable("DEEPFREEZE_AGENT_DIR")) return chosen;
  if (const char* runtime = variable("XDG_RUNTIME_DIR")) {
    return std::filesystem::path(runtime) / "deepfreeze";
  }
  std::error_code failed;  // $TMPDIR may name a directory of an earlier job
  auto temporary = std::filesystem::temp_directory_path(failed);
  if (failed) temporary = "/tmp";
  return temporary / fmt::format("deepfreeze-{}", ::geteuid());
}

Status make_private_directory(const std::filesystem::path& path) {
  if (::mkdir(path.c_str(), kOwnerOnly) != 0 && errno != EEXIST) {
    const int cause = errno;
    return fail(ErrorCode::kIo,
                fmt::format("make the directory {}: {}", path.string(), std::strerror(cause)),
                cause);
  }
  struct stat found = {};
  if (::lstat(path.c_str(), &found) != 0 || !S_ISDIR(found.st_mode) ||
      found.st_uid != ::geteuid() || (found.st_mode & kOthers) != 0) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{} is not a directory of this user alone (mode 0700): others could "
                            "read a training's memory through it. Choose another one with "
                            "DEEPFREEZE_AGENT_DIR",
                            path.string()));
  }
  return {};
}

Result<UniqueFd> lock_file(const std::filesystem::path& path) {
  constexpr mode_t kOwnerReads = 0600;
  UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, kOwnerReads));
  if (file.valid() && ::flock(file.get(), LOCK_EX | LOCK_NB) == 0) return file;
  const int cause = errno;
  return fail(cause == EWOULDBLOCK ? ErrorCode::kExists : ErrorCode::kIo,
              fmt::format("lock {}: {}", path.string(), std::strerror(cause)), cause);
}

void remove_name(const std::filesystem::path& path) { std::ignore = ::unlink(path.c_str()); }

}  // namespace deepfreeze

#include "storage/secret_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "base/try.h"
#include "base/unique_fd.h"

namespace deepfreeze {
namespace {

std::unexpected<Error> unreadable_file(const std::string& path, int error) {
  const bool is_absent = error == ENOENT || error == ENOTDIR || error == EACCES;
  return fail(is_absent ? ErrorCode::kNotFound : ErrorCode::kInvalidArgument,
              fmt::format("read {}: {}", path, std::generic_category().message(error)), error);
}

}  // namespace

Result<Secret> read_secret_file(const std::string& path, std::size_t bytes_max) {
  // A pipe that nobody writes to must not hold us up.
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file.valid()) return unreadable_file(path, errno);
  struct stat is{};
  if (::fstat(file.get(), &is) != 0) return unreadable_file(path, errno);
  if (!S_ISREG(is.st_mode) && !S_ISCHR(is.st_mode)) {  // such as /dev/null
    return fail(ErrorCode::kInvalidArgument, fmt::format("read {}: it is not a file", path));
  }
  std::string bytes(bytes_max + 1, '\0');
  std::size_t filled = 0;
  while (filled < bytes.size()) {
    const ssize_t count = ::read(file.get(), bytes.data() + filled, bytes.size() - filled);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      const int error = errno;
      wipe(bytes);
      return unreadable_file(path, error);
    }
    if (count == 0) break;
    filled += static_cast<std::size_t>(count);
  }
  const bool is_too_long = filled > bytes_max;
  bytes.resize(filled);
  Secret text(std::move(bytes));
  if (!is_too_long) return text;
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("read {}: it has more than {} bytes", path, bytes_max));
}

}  // namespace deepfreeze

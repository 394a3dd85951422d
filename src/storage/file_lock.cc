#include "storage/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>

#include "base/try.h"
#include "storage/os_error.h"

namespace deepfreeze {
namespace {

Result<UniqueFd> open_for_lock(const std::string& path) {
  UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.valid()) return file;
  return os_fail("lock", path, errno);
}

}  // namespace

Result<FileLock> FileLock::take(const std::string& path) {
  DF_TRY(UniqueFd file, open_for_lock(path));
  if (::flock(file.get(), LOCK_EX | LOCK_NB) == 0) return FileLock(std::move(file));
  if (errno == EWOULDBLOCK) return fail(ErrorCode::kBusy, "lock " + path + ": it is taken");
  return os_fail("lock", path, errno);
}

FileLock::~FileLock() {
  if (file_.valid()) ::flock(file_.get(), LOCK_UN);
}

bool FileLock::is_taken(const std::string& path) {
  const auto file = open_for_lock(path);
  if (!file) return false;
  return ::flock(file->get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

}  // namespace deepfreeze

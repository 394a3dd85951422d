#include "storage/trace_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <string_view>

#include "base/log.h"
#include "base/trace.h"
#include "base/try.h"
#include "base/unique_fd.h"
#include "storage/beneath.h"
#include "storage/os_error.h"
#include "storage/posix_vfs.h"

namespace deepfreeze {
namespace {

std::atomic<bool> begun{false};

Status append(const std::string& path, int flags, std::string_view text) {
  const UniqueFd fd(
      ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | flags, kFileMode));
  if (!fd.valid()) return os_fail("open", path, errno);
  while (!text.empty()) {
    const ssize_t count = ::write(fd.get(), text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return os_fail("write", path, count < 0 ? errno : EIO);
    text.remove_prefix(static_cast<std::size_t>(count));
  }
  return {};
}

// All checkpointers of a process write to one file, also after it has changed its directory.
Result<std::string> first_meaning_of(const std::string& named) {
  static std::mutex mutex;
  static std::map<std::string, std::string> meanings;
  const std::lock_guard lock(mutex);
  const auto known = meanings.find(named);
  if (known != meanings.end()) return known->second;
  DF_TRY(const std::filesystem::path path, absolute_path(named));
  return meanings[named] = path.string();
}

}  // namespace

Result<std::unique_ptr<TraceFile>> TraceFile::from_environment() {
  const char* named = std::getenv("DEEPFREEZE_TRACE");
  if (named == nullptr || *named == '\0') return nullptr;
  DF_TRY(const std::string path, first_meaning_of(named));
  if (!begun.exchange(true)) {
    const Status emptied = append(path, O_TRUNC, "[\n");
    if (!emptied) return std::unexpected(emptied.error().within("DEEPFREEZE_TRACE"));
  }
  trace::start();
  return std::make_unique<TraceFile>(path);
}

TraceFile::~TraceFile() { flush(); }

void TraceFile::flush() {
  const std::string text = trace::take();
  if (failed_ || text.empty()) return;
  const Status written = append(path_, 0, text);
  if (written) return;
  failed_ = true;
  log_warning("the trace ends here: " + written.error().message());
}

}  // namespace deepfreeze

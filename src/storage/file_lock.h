// A lock on a file, by which one process sees that another one is still there. It goes with the
// process that has it, also if that is killed; a child that was forked meanwhile keeps it until it
// ends, too. Any thread.
#pragma once

#include <string>

#include "base/unique_fd.h"

namespace deepfreeze {

class FileLock {
 public:
  FileLock() = default;
  // The file is there already. kBusy: somebody has the lock. kIo, kNotFound, ...: by the system.
  [[nodiscard]] static Result<FileLock> take(const std::string& path);
  FileLock(FileLock&&) = default;
  FileLock& operator=(FileLock&&) = default;
  // Lets it go, also for children that were forked.
  ~FileLock();

  // Whether another FileLock has it, of this process or another. False if nobody can know.
  [[nodiscard]] static bool is_taken(const std::string& path);

 private:
  explicit FileLock(UniqueFd file) : file_(std::move(file)) {}

  UniqueFd file_;
};

}  // namespace deepfreeze

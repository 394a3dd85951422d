// The sealed files of this node's directory, as other nodes read them: a few are held open for a
// while, so that a file is not opened anew for each range of it. One thread. Reads a disk.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "base/clock.h"
#include "base/mapped_memory.h"
#include "link/link_message.h"
#include "storage/vfs.h"

namespace deepfreeze {

inline constexpr std::size_t kServedFilesMax = 32;  // open at a time
// Then an open file is closed, so that a deleted one gives its space back.
inline constexpr std::chrono::milliseconds kServedIdleMax{10'000};

class ServedFiles {
 public:
  // Nobody else may use `run`.
  explicit ServedFiles(std::unique_ptr<Vfs> run, std::chrono::milliseconds idle = kServedIdleMax)
      : run_(std::move(run)), idle_(idle) {}

  // LinkBytes or LinkError, with the number of the read. A range of no bytes opens the file anew,
  // so that it tells of the file that has the name now; other ranges may come from a file that has
  // been deleted since. kInvalidArgument: not a sealed name, more than kRangeBytesMax, or beyond
  // the file's end.
  [[nodiscard]] LinkMessage answer(const LinkRead& read, Monotonic::time_point now);
  void close_idle(Monotonic::time_point now);
  [[nodiscard]] std::size_t open_count() const { return files_.size(); }

 private:
  struct Open {
    std::unique_ptr<File> file;
    Monotonic::time_point used_at;
  };
  [[nodiscard]] Result<LinkBytes> read_range(const LinkRead& read, Monotonic::time_point now);
  [[nodiscard]] Result<File*> open(const LinkRead& read, Monotonic::time_point now);
  [[nodiscard]] Result<std::unique_ptr<File>> open_in_run(const std::string& path);

  [[nodiscard]] Result<std::span<const std::byte>> read_pages(File& file, const LinkRead& read);

  const std::unique_ptr<Vfs> run_;
  const std::chrono::milliseconds idle_;
  std::map<std::string, Open> files_;  // by path in the run
  MappedMemory pages_;                 // of the read that is being answered
};

}  // namespace deepfreeze

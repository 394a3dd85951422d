// A file that a user asked for, outside any run: whole under its name, or not there at all.
// Owned by one thread.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/unique_fd.h"

namespace deepfreeze {

class NewFile {
 public:
  // Makes a temporary file beside `path`. kExists if `path` is taken and `replace` is not set.
  [[nodiscard]] static Result<NewFile> create(const std::string& path, bool replace);

  NewFile(NewFile&& other) noexcept;
  NewFile& operator=(NewFile&&) = delete;
  ~NewFile();  // removes an unpublished file

  [[nodiscard]] Status append(std::span<const std::byte> bytes);

  // Sync, close, rename to `path`, sync the directory.
  [[nodiscard]] Status publish();

 private:
  NewFile(std::string path, bool replace);
  [[nodiscard]] Status rename_into_place() const;

  std::string path_;
  std::string temporary_;  // empty once published
  bool replace_ = false;
  UniqueFd fd_;
};

}  // namespace deepfreeze

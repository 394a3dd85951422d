// A private temporary directory (mode 0700) that is removed with everything in it.
#pragma once

#include <stdlib.h>  // NOLINT: mkdtemp

#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>

namespace deepfreeze {

class ScopedDir {
 public:
  ScopedDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "deepfreeze-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) {
      std::perror(pattern.c_str());
      std::abort();  // no test can go on without its directory
    }
    path_ = pattern;
  }
  ScopedDir(const ScopedDir&) = delete;
  ScopedDir& operator=(const ScopedDir&) = delete;
  ~ScopedDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace deepfreeze

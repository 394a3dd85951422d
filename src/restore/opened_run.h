// A run's directory, opened for reading: its files, and the result of listing it once. Read-only.
#pragma once

#include <memory>
#include <string>

#include "manifest/run_directory.h"
#include "storage/vfs.h"

namespace deepfreeze {

struct OpenedRun {
  std::string path;  // as the caller gave it
  std::unique_ptr<Vfs> vfs;
  RunListing listing;
};

// kNotFound if there is no run; the message says so.
[[nodiscard]] Result<OpenedRun> open_run(const std::string& path);

}  // namespace deepfreeze

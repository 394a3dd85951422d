// A file system of its own on a loop device, whose power can be cut. In memory, so that nothing of
// this machine's disk is touched. Needs root.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "base/unique_fd.h"
#include "deepfreeze/result.h"
#include "support/scoped_dir.h"

namespace deepfreeze {

struct FileSystem {
  const char* name;                // of the test
  const char* type;                // as mount() knows it
  const char* options;             // of mount()
  const char* features = nullptr;  // of mkfs.ext4 -O
};

// How much unsynced data the device keeps.
enum class Cut : std::uint32_t {
  kLogFlushed = 1,  // the journal as it stands: names may be there whose data is not
  kLogLost = 2,     // only the part of the journal that is on the device
};

class LoopDisk {
 public:
  // kUnsupported if this machine has no loop devices, no such file system, or we are not root.
  [[nodiscard]] static Result<std::unique_ptr<LoopDisk>> make(const FileSystem& file_system);
  LoopDisk(const FileSystem& file_system, UniqueFd memory, UniqueFd device, std::string name);
  LoopDisk(const LoopDisk&) = delete;
  LoopDisk& operator=(const LoopDisk&) = delete;
  ~LoopDisk();

  // Mounted at this place or not; from mount() on, the file system is recovered from its journal.
  [[nodiscard]] std::filesystem::path path() const { return place_.path(); }
  [[nodiscard]] Status mount();
  // Nobody may use it any more.
  [[nodiscard]] Status unmount();
  // From now on nothing reaches the device, and every write and sync fails.
  [[nodiscard]] Status cut_power(Cut cut);

 private:
  FileSystem file_system_;
  UniqueFd memory_;   // holds the device's bytes
  UniqueFd device_;   // detached when closed
  std::string name_;  // of the device
  ScopedDir place_;
  bool mounted_ = false;
};

}  // namespace deepfreeze

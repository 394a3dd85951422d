// A checkpoint as the beginning of a run of its own. On one file system its files are linked, so
// that nothing is copied; they outlive the run that they came from. Blocking; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "format/records.h"
#include "storage/vfs.h"

namespace deepfreeze {

struct Forked {
  Manifest manifest;               // of the new run's checkpoint
  std::uint64_t bytes_copied = 0;  // of files that could not be linked
};

// `to` is the new run's directory, made if there is none; the new run names `parent` and its step
// as its parent. Headers are checked, and blocks, too, if they are copied. kExists: `to` is
// a run already. After an error it has no checkpoint.
[[nodiscard]] Result<Forked> fork_attempt(Vfs& from, const Manifest& manifest,
                                          const std::string& parent, const std::string& to);
// As above, into a directory that is there, durably.
[[nodiscard]] Result<Forked> fork_attempt(Vfs& from, const Manifest& manifest,
                                          const std::string& parent, Vfs& to);

}  // namespace deepfreeze

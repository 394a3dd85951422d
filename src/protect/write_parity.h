// Calculates and seals the parity file of one member of a group, from the sealed files of all
// members. Blocking; any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/rate_limit.h"
#include "format/records.h"
#include "storage/vfs.h"

namespace deepfreeze {

// The unit in which pieces are read and encoded: two of each member's are in memory at a time.
inline constexpr std::size_t kStripBytes = 1024 * 1024;

struct ParityMember {
  std::uint64_t node = 0;           // its number in the job
  Vfs* vfs = nullptr;               // that has its files
  std::vector<ManifestFile> files;  // of the manifest, in its order
};

struct ParityTask {
  const Manifest& manifest;
  std::span<const ParityMember> members;  // in the order of their nodes
  std::size_t own = 0;                    // the member whose parity is calculated
  std::size_t parity = 1;                 // lost members that can be borne
  std::uint64_t nodes = 1;                // of the job, for the file's name
};

struct ParityLimits {
  RateLimit& rate;                // of the bytes that are read
  const std::atomic<bool>& stop;  // once it is true, the work ends with kCancelled
};

// The file is durable on return, under its name in the checkpoint's directory in the Vfs of the own
// member. Nothing is done if the name is there. No temporary file is left behind by an error.
// Errors are those of reading, kCorrupt for a block that does not verify, and those of writing.
[[nodiscard]] Status write_parity(const ParityTask& task, const ParityLimits& limits);

}  // namespace deepfreeze

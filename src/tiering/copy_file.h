// Copies one sealed file from a tier to another, and checks every block against the file's header
// on the way: a bad block never gets a name on the other tier. Blocking; any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "base/rate_limit.h"
#include "format/records.h"
#include "storage/tier_store.h"
#include "storage/vfs.h"

namespace deepfreeze {

// A copy in progress takes no more memory than this: a header, and these slabs of 4 MiB.
inline constexpr std::size_t kCopySlabs = 4;

struct CopySettings {
  RateLimit& rate;                // of the bytes that are read
  const std::atomic<bool>& stop;  // once it is true, the copy ends with kCancelled
  // Called with the bytes that were sent since the last call. May be empty.
  std::function<void(std::uint64_t bytes)> on_bytes = {};
};

struct CopyRequest {
  Vfs& from;
  const Manifest& manifest;
  const ManifestFile& file;
  TierStore& to;
  IfTaken if_taken = IfTaken::kRefuse;
  std::string directory = {};  // of the copy; empty: as in `from`
};

// The bytes are durable on return, the name after settle(). kCorrupt: the file differs from its
// manifest, or a block of it from its header; nothing has the name then. kExists: the name is
// taken.
[[nodiscard]] Status copy_sealed_file(const CopyRequest& request, const CopySettings& settings);

// Whether the file is there with the size and the header that the manifest lists. Its blocks are
// not read.
[[nodiscard]] bool has_sealed_file(Vfs& vfs, const Manifest& manifest, const ManifestFile& file);

// "step-…/rank-….safetensors".
[[nodiscard]] std::string path_in_run(const Manifest& manifest, std::string_view file_name);

}  // namespace deepfreeze

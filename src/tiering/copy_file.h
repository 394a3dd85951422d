// Copies one sealed file from a tier to another, and checks every block against the file's header
// on the way: a bad block never gets a name on the other tier. Blocking; any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "base/rate_limit.h"
#include "format/records.h"
#include "manifest/run_directory.h"
#include "storage/tier_store.h"
#include "storage/vfs.h"
#include "tiering/packing_judge.h"

namespace deepfreeze {

// A copy in progress takes no more memory than this: a header, and these slabs of 4 MiB. If the
// file is packed on the way, as many again.
inline constexpr std::size_t kCopySlabs = 4;

struct CopySettings {
  RateLimit& rate;                // of the bytes that are read; with `packing`, that are sent
  const std::atomic<bool>& stop;  // once it is true, the copy ends with kCancelled
  // Called with the bytes of the file that were sent since the last call, and with the bytes that
  // were sent for them: fewer if they were packed. May be empty.
  std::function<void(std::uint64_t bytes, std::uint64_t sent)> on_bytes = {};
  // Decides whether the file arrives packed; null: it is the plain one.
  PackingJudge* packing = nullptr;
  // The other tier, as it was seen last: files that it has are linked (shared_files.h). May be
  // null.
  const RunListing* there = nullptr;
  // False: every file is sent, and every block of it checked.
  bool shares = true;
};

struct CopyRequest {
  Vfs& from;
  const Manifest& manifest;
  const ManifestFile& file;
  TierStore& to;
  IfTaken if_taken = IfTaken::kRefuse;
  std::string to_name = {};  // of the copy, below the run's root; empty: as in `from`
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

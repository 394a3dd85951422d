// Files that several checkpoints of a run have in common are sent to a tier once. A tier with hard
// links links them, two copies in turn. In another one they lie in a directory of their own, and
// the checkpoints refer to them; docs/commit_protocol.md, "Files that a tier has already".
// Blocking; any thread.
#pragma once

#include <string_view>

#include "format/records.h"
#include "manifest/run_directory.h"
#include "storage/tier_store.h"
#include "tiering/copy_file.h"

namespace deepfreeze {

// Smaller ones are sent.
inline constexpr std::uint64_t kReferredBytesMin = 128U << 10U;

// Gives the attempt a file that was written for an earlier one. False: it has to be sent in the
// usual way. Errors are those of copy_sealed_file().
[[nodiscard]] Result<bool> share_file(const CopyRequest& request, const CopySettings& settings);

// The file that a reference of this attempt names stays as long as the reference: if that is not
// sure, the file itself takes its place. Before the manifest makes the attempt count.
[[nodiscard]] Status secure_reference(const CopyRequest& request, const CopySettings& settings);

// No further attempt refers to the file that this name is a reference to, and no flush to a bad
// copy. Nothing if it is no reference, is missing, or does not verify.
[[nodiscard]] Status retire_referred(TierStore& store, std::string_view name);

// Deletes the files of the shared directory that no attempt refers to. Any number of processes may
// do it, beside flushes, and die at any moment. `listing` is the tier's, perhaps an old one: while
// all files are referred to by it, nothing else is read.
[[nodiscard]] Status sweep_shared_files(TierStore& store, const RunListing& listing);

}  // namespace deepfreeze

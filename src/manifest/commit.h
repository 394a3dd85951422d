// The commit protocol. commit.cc numbers its steps; docs/commit_protocol.md explains them.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "format/records.h"
#include "storage/vfs.h"

namespace deepfreeze {

// Of the text in a rank-….failed: more is neither written nor read.
inline constexpr std::size_t kFailureTextBytesMax = 4096;

// Step 1: makes the attempt's directory durable.
[[nodiscard]] Status begin_attempt(Vfs& vfs, const AttemptName& name);

// Step 4: gives finished files their sealed names, durably.
[[nodiscard]] Status seal_parts(Vfs& vfs, const AttemptName& attempt,
                                std::span<const PartName> parts);

// Step 4, failed: best effort, so that rank 0 need not wait for the deadline.
void report_failed_part(Vfs& vfs, const AttemptName& attempt, const PartName& part,
                        const Error& error);

// What the process that commits knows of a file that it has sealed itself.
struct OwnPart {
  std::uint64_t file_bytes = 0;
  std::uint64_t header_bytes = 0;
  std::uint32_t header_crc = 0;
  Annotations annotations;
  std::optional<std::uint64_t> non_finite = {};  // values; absent where nobody has counted
};

struct CommitRequest {
  Identity identity;  // of rank 0's first part
  std::uint32_t world_size = 1;
  std::chrono::milliseconds deadline{0};  // for the other ranks' parts
  // Of all files there are, in order, or none: their headers are read back and compared, but not
  // taken apart.
  std::vector<OwnPart> own;
};

// Steps 5 and 6, rank 0: waits for all parts, checks sizes, header CRCs and identities, and
// publishes the manifest. On failure the attempt is given the outcome "aborted" as far as the
// disk allows (on a full one it is removed). kIncomplete where a part is missing, kFenced where a
// newer generation was claimed, kCancelled where another process gave the attempt up. An error in
// the last directory sync is kIo with "outcome unknown" in its message, and nothing is aborted.
[[nodiscard]] Result<Manifest> commit_attempt(Vfs& vfs, const CommitRequest& request);

struct CheckedParts;  // manifest/sealed_parts.h
// What step 6 publishes. Whoever makes it of the same files makes the same, to the byte.
[[nodiscard]] Manifest committed_manifest(const CommitRequest& request, CheckedParts checked);

// Publishes "aborted", unless an outcome exists: then that one is returned.
[[nodiscard]] Result<Manifest> abort_attempt(Vfs& vfs, const Manifest& aborted);

// Deletes decided attempts, one after the other: manifest, directory sync, then the rest. An
// undecided one may only be removed by the process whose attempt it is. Idempotent; kCorrupt
// where a manifest does not verify: that attempt is left as it is.
[[nodiscard]] Status remove_attempts(Vfs& vfs, std::span<const AttemptName> names);
[[nodiscard]] Status remove_attempt(Vfs& vfs, const AttemptName& name);

}  // namespace deepfreeze

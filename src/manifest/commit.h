// The commit protocol. commit.cc numbers its steps; docs/commit_protocol.md explains them.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "format/records.h"
#include "storage/vfs.h"

namespace deepfreeze {

// Bounds the text in a rank-….failed file: longer text is neither written nor read.
inline constexpr std::size_t kFailureTextBytesMax = 4096;

// Step 1: makes the attempt's directory durable.
[[nodiscard]] Status begin_attempt(Vfs& vfs, const AttemptName& name);

// Step 4: gives finished files their sealed names, durably.
[[nodiscard]] Status seal_parts(Vfs& vfs, const AttemptName& attempt,
                                std::span<const PartName> parts);

// Step 4, failed: best effort, so that rank 0 need not wait for the deadline.
void report_failed_part(Vfs& vfs, const AttemptName& attempt, const PartName& part,
                        const Error& error);

// The facts about a file that the committing process sealed itself.
struct OwnPart {
  std::uint64_t file_bytes = 0;
  std::uint64_t header_bytes = 0;
  std::uint32_t header_crc = 0;
  Annotations annotations;
  std::optional<std::uint64_t> non_finite = {};  // values; absent if they were not counted
  std::optional<Origin> origin = {};             // of a file that was written for another attempt
};

struct CommitRequest {
  Identity identity;  // of rank 0's first part
  std::uint32_t world_size = 1;
  std::chrono::milliseconds deadline{0};  // for the other ranks' parts
  // Either all files, in order, or none. The headers of these files are read back and compared, but
  // not parsed.
  std::vector<OwnPart> own;
};

// Steps 5 and 6, rank 0: waits for all parts, checks sizes, header CRCs and identities, and
// publishes the manifest. On failure the attempt is given the outcome "aborted" as far as the disk
// allows (on a full one it is removed). kIncomplete if a part is missing, kFenced if a newer
// generation was claimed, kCancelled if another process gave the attempt up. An error in the last
// directory sync is kIo with "outcome unknown" in its message, and nothing is aborted.
[[nodiscard]] Result<Manifest> commit_attempt(Vfs& vfs, const CommitRequest& request);

struct CheckedParts;  // manifest/parts_check.h
// Step 6 for a rank 0 that did step 5 elsewhere: `checked` is its outcome for all files of the
// attempt, and `here` those that lie in this directory. Ends like commit_attempt(): an error of
// step 5 gives the attempt up; with kExists, the outcome that is there already is taken.
[[nodiscard]] Result<Manifest> conclude_attempt(Vfs& vfs, const CommitRequest& request,
                                                Result<CheckedParts> checked,
                                                std::span<const ManifestFile> here);

// An outcome that another directory has decided (decision 0026).
struct DecidedOutcome {
  Manifest manifest;
  std::string text;                // the bytes that it was read from
  std::vector<ManifestFile> here;  // the files of this directory that a committed one vouches for
};
// Gives this directory's attempt that outcome, as the same bytes and durably; one that is there
// already is made durable. kCancelled: one of the files is gone. kMismatch: another outcome is
// there.
[[nodiscard]] Status place_decided(Vfs& vfs, const DecidedOutcome& decided);

// The manifest that step 6 publishes. Any process that makes it from the same files makes the same
// bytes.
[[nodiscard]] Manifest committed_manifest(const CommitRequest& request, CheckedParts checked);

[[nodiscard]] Manifest aborted_outcome(const Identity& identity);
// Publishes "aborted", unless an outcome exists: then that one is returned.
[[nodiscard]] Result<Manifest> abort_attempt(Vfs& vfs, const Manifest& aborted);

// Deletes decided attempts, one after the other: manifest, directory sync, then the rest. An
// undecided one may only be removed by the process whose attempt it is. Idempotent; kCorrupt if a
// manifest does not verify: that attempt is left as it is. `may_go` is asked right before each.
[[nodiscard]] Status remove_attempts(Vfs& vfs, std::span<const AttemptName> names,
                                     const std::function<bool(const AttemptName&)>& may_go = {});
[[nodiscard]] Status remove_attempt(Vfs& vfs, const AttemptName& name);

}  // namespace deepfreeze

// Step 5 of the commit protocol: whether all parts of an attempt exist, and the contents of their
// headers. Stateless; any thread.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "manifest/commit.h"
#include "manifest/parts_check.h"

namespace deepfreeze {

// A file's header as its bytes.
struct HeaderBytes {
  std::vector<std::byte> bytes;
  std::uint64_t file_bytes = 0;
};
// Their size is checked, and nothing else.
[[nodiscard]] Result<HeaderBytes> read_header_bytes(Vfs& vfs, std::string_view path);

// Size, CRC and structure of the header are checked, the data is not read.
[[nodiscard]] Result<PartHeader> read_part_header(Vfs& vfs, std::string_view path);

// The identity in the first readable header of an attempt, sealed or not.
[[nodiscard]] std::optional<Identity> find_identity(Vfs& vfs, const AttemptName& name);

// The failure that a rank of the attempt reported; nothing if none has.
[[nodiscard]] std::optional<Error> reported_failure(Vfs& vfs, const AttemptName& name);

// Changes as long as somebody is at work on an attempt: the names in its directory, and the times
// at which files that are not sealed were written.
[[nodiscard]] std::string attempt_progress(Vfs& vfs, const AttemptName& name);

// Returns the parts in the order of (rank, file). Waits with a growing pause until every rank's
// parts are sealed. kIncomplete: a rank reported failure, or the deadline passed. kExists: the
// attempt has an outcome already. kMismatch: a part of another world size is there, or one too
// many.
[[nodiscard]] Result<std::vector<PartName>> wait_for_parts(Vfs& vfs, const CommitRequest& request);
// Waits for the parts of these ranks alone (ascending), and returns them: those of one node. Parts
// of other ranks may be there, too.
[[nodiscard]] Result<std::vector<PartName>> wait_for_parts(Vfs& vfs, const CommitRequest& request,
                                                           std::span<const std::uint32_t> ranks);

// kIncomplete: a part of one of these ranks (ascending) is missing. kMismatch: there is one too
// many. `parts` is in the order of (rank, file).
[[nodiscard]] Status check_complete(std::span<const PartName> parts,
                                    std::span<const std::uint32_t> ranks, std::uint32_t world_size);

// Checks the parts likewise, but without waiting, and whatever outcome is recorded.
[[nodiscard]] Result<std::vector<PartName>> present_parts(Vfs& vfs, const CommitRequest& request);

// kCorrupt, kMismatch: a header does not verify, is of another attempt, or stores a key that
// another part stores too and that is not a disjoint box.
[[nodiscard]] Result<CheckedParts> check_parts(Vfs& vfs, const CommitRequest& request,
                                               std::span<const PartName> parts);

}  // namespace deepfreeze

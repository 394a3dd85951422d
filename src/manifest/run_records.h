// Reads every record below a run's root as it is, before it is known which run this is.
// Stateless; any thread.
#pragma once

#include <vector>

#include "manifest/run_directory.h"

namespace deepfreeze {

struct RunRecords {
  std::vector<AttemptState> attempts;  // by (step, attempt id)
  std::vector<AttemptName> half_deleted;
  std::vector<Claim> claims;  // by generation
  std::optional<NodeMarker> node = {};
};

// Reads the records of one moment: if another process deletes an attempt meanwhile, the root is
// read again, because the newer attempt that allowed the deletion may not have been listed yet.
// kUnsupported if a record is of a newer format: skipping it would lose its contents.
[[nodiscard]] Result<RunRecords> read_records(Vfs& vfs);
inline constexpr int kReadPassesMax = 10;

// Whether an attempt's directory has parity of this node, or some that is being written.
[[nodiscard]] bool shows_parity(const std::vector<DirEntry>& entries);

// The claims alone, by generation.
[[nodiscard]] Result<std::vector<Claim>> read_claims(Vfs& vfs);

// The records that tell which directory decides an attempt.
struct Deciders {
  std::vector<Claim> claims;  // by generation
  std::optional<NodeMarker> node;
};
[[nodiscard]] Result<Deciders> read_deciders(Vfs& vfs);

}  // namespace deepfreeze

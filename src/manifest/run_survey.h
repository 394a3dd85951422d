// Finds the oddities in a run's directory: entries that a healthy run at rest would not have. Reads
// names, sizes and records; no data. Stateless; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "manifest/run_directory.h"

namespace deepfreeze {

enum class OddityKind : std::uint8_t {
  kRunFileMissing,
  kRunFileDamaged,
  kRunFileUnread,    // it could not be read and may be whole
  kRunFileKept,      // a bad one that was replaced
  kClaimDamaged,     // or of another run
  kClaimUnread,      // as above
  kClaimVoid,        // another record of that number holds
  kNodeDamaged,      // node.json
  kNodeUnread,       // as above
  kManifestDamaged,  // or of another attempt or run
  kManifestUnread,   // as above, or its directory could not be listed
  kManifestKept,     // a bad one that was replaced
  kTagsUnread,       // the record of given tags does not verify or can't be read
  kTemporary,
  kHalfDeleted,
  kAborted,
  kFenced,      // undecided, and of a generation above which there is a claim
  kUndecided,   // in flight, or of a process that died
  kInDoubt,     // undecided, and another directory decides it
  kRankFailed,  // the first few of an attempt, then how many more
  kUnlisted,    // ours by its name, and the manifest of its checkpoint does not list it
  kForeign,
  kForeignInside,  // of an attempt's directory
};

struct Oddity {
  OddityKind kind = OddityKind::kForeign;
  std::string name;                         // below the run's root; any bytes
  std::optional<AttemptName> attempt = {};  // the one it is, or lies in
  std::uint64_t bytes = 0;                  // of the file, or of the attempt's files
  std::int64_t age_micros = 0;              // of temporary files; 0 if it is not known
  std::string detail = {};
};

// In the order of the directory. Attempts that vanish meanwhile are left out.
[[nodiscard]] Result<std::vector<Oddity>> survey_run(Vfs& vfs, const RunListing& listing);

// Names in a committed attempt's directory that are neither its manifest, nor listed there, nor
// records of tags.
[[nodiscard]] Result<std::vector<std::string>> unlisted_names(Vfs& vfs, const Manifest& manifest);

}  // namespace deepfreeze

// The kind of thing that a name in a run's directory stands for. Pure: looks at names only.
#pragma once

#include <cstdint>

#include "storage/vfs.h"

namespace deepfreeze {

enum class NameKind : std::uint8_t {
  kRunRecord,
  kKeptRunRecord,  // deepfreeze.bad-<nonce>.json
  kClaim,
  kVoidClaim,  // generation-<g>.void-<nonce>.json: another record of that number holds
  kScrubMemory,
  kIndex,  // .deepfreeze-index, a hint of the catalogue
  kNodeMarker,
  kAttempt,
  kShared,  // the directory of files that references name
  kManifest,
  kTags,
  kDeletedManifest,
  kKeptManifest,  // manifest.bad-<nonce>.json
  kPart,
  kSealedPart,
  kParity,      // of this node's files among those of other nodes
  kParityMark,  // whether all nodes have theirs
  kFailedPart,
  kTemporary,  // a record before it has its name
  kForeign,
};

[[nodiscard]] NameKind kind_in_run(const DirEntry& entry);
[[nodiscard]] NameKind kind_in_attempt(const DirEntry& entry);

}  // namespace deepfreeze

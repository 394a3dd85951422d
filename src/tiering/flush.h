// Brings one committed attempt to another tier. docs/commit_protocol.md, "Flushing"; flush.cc
// numbers the steps. Blocking; any thread.
#pragma once

#include "manifest/run_directory.h"
#include "tiering/copy_file.h"

namespace deepfreeze {

// The attempt is committed on `to` once this returns success: every file is there, each block
// verified on the way, and the manifest with the same bytes. Several processes may flush one
// attempt at once. It goes on where an earlier flush has ended, file by file.
// kFenced, kMismatch: as copy_history(). kCorrupt: the copy on `from` does not verify. kGone: it
// was deleted meanwhile. kCancelled: settings.stop.
[[nodiscard]] Status flush_attempt(Vfs& from, const Manifest& manifest, TierStore& to,
                                   const CopySettings& settings);

}  // namespace deepfreeze

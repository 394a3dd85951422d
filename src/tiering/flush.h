// Brings one committed attempt to another tier. docs/commit_protocol.md, "Flushing"; flush.cc
// numbers the steps. Blocking; any thread.
#pragma once

#include <cstdint>

#include "manifest/run_directory.h"
#include "tiering/copy_file.h"

namespace deepfreeze {

// The files of an attempt that its nearest directory has: all, or those of one of the job's nodes,
// whose others bring theirs (docs/decisions/0026).
enum class FlushShare : std::uint8_t { kAll, kOfNode };

// The attempt is committed on `to` once this returns success: every file is there, each block
// verified on the way, and the manifest with the same bytes. Several processes may flush one
// attempt at once. Files that an earlier flush has brought are not sent again.
//
// `near` has the claims of the processes that may continue the run: kFenced if `to` has another
// one, whose process may have left this attempt behind. Null: somebody asks for this very attempt,
// and it does not matter which process continues the run. kMismatch: `to` holds another run.
// kCorrupt: the copy on `from` does not verify, or `to` has another outcome for the attempt. kGone:
// it was deleted meanwhile, on either side; the copy that a flush has begun is then removed, unless
// other nodes have a share in it. kBusy: all files of the node are there, durably, and some of
// other nodes are not. kCancelled: settings.stop.
[[nodiscard]] Status flush_attempt(Vfs& from, const Manifest& manifest, TierStore& to,
                                   const CopySettings& settings, Vfs* near,
                                   FlushShare share = FlushShare::kAll);

// kIncomplete if the listing of the attempt's directory lacks a file of the manifest.
[[nodiscard]] Status check_all_there(const Manifest& manifest, Vfs& to);

}  // namespace deepfreeze

// The commit protocol as ranks other than the one that commits see it, and what a rank does that
// can't finish its part. docs/commit_protocol.md. Stateless; any thread.
#pragma once

#include <chrono>
#include <span>

#include "format/records.h"
#include "storage/vfs.h"

namespace deepfreeze {

// Step 1 by every rank: whoever comes first makes the directory.
[[nodiscard]] Status join_attempt(Vfs& vfs, const AttemptName& name);

// After step 4, by the ranks that don't commit: waits until the outcome is published, and makes
// what was published durable before it says so. kCancelled: it is aborted, with what the rank
// reported that failed. All else has "outcome unknown" in its message; kTimeout: nothing was
// published in time.
[[nodiscard]] Result<Manifest> await_outcome(Vfs& vfs, const Identity& identity,
                                             std::chrono::milliseconds deadline);

// A rank whose part is not or will not be there: takes its files away, which fill the disk, and
// tells the others why; rank 0 gives the attempt up. Where the files have their final names already
// the attempt is aborted first; if it is committed after all, or nobody knows, they stay. Best
// effort: who hears nothing waits for his deadline. `own.part` is its first file. A directory that
// is gone is not made again: it was aborted and deleted, and would pass for undecided.
// True where the attempt is surely over; else it may be published, or is already.
[[nodiscard]] bool withdraw(Vfs& vfs, const Identity& own, const Error& error);

// The same of an attempt that the rank has not joined: it may be the first to make the directory,
// and without its part the attempt is over.
void withdraw_unjoined(Vfs& vfs, const Identity& own, const Error& error);

// By rank 0: the attempt is given the outcome "aborted", unless it has one, or the disk is full:
// then it is removed.
void give_attempt_up(Vfs& vfs, const Identity& own);

// Of an attempt that is aborted: the rank's own files are of no use.
void remove_own_files(Vfs& vfs, const Identity& own);

}  // namespace deepfreeze

// The commit protocol from the side of the ranks that do not commit, and the steps of a rank that
// can't finish its part. docs/commit_protocol.md. Stateless; any thread.
#pragma once

#include <chrono>
#include <span>

#include "format/records.h"
#include "storage/vfs.h"

namespace deepfreeze {

// Step 1 by every rank: the first one makes the directory.
[[nodiscard]] Status join_attempt(Vfs& vfs, const AttemptName& name);

// After step 4, by the ranks that don't commit: waits until the outcome is published, and makes it
// durable before returning it. kCancelled: it is aborted; the error says which failure a rank
// reported. All other errors have "outcome unknown" in their messages; kTimeout: no outcome was
// published in time.
[[nodiscard]] Result<Manifest> await_outcome(Vfs& vfs, const Identity& identity,
                                             std::chrono::milliseconds deadline);

// Ends the part of a rank that has failed: removes its files, which fill the disk, and reports the
// error to the other ranks; rank 0 gives the attempt up. If the files have their final names
// already, the attempt is aborted first; if it turns out to be committed, or this can't be found
// out, they stay. Best effort: a rank that does not see the report waits for its deadline.
// If another directory decides the attempt (in_doubt.h), the files stay, and the error is reported
// beside them.
// `own.part` is its first file. A directory that is gone is not made again: it was aborted and
// deleted, and a new one would pass for undecided.
// Returns true if the attempt is surely over; otherwise it may be published, or is already.
[[nodiscard]] bool withdraw(Vfs& vfs, const Identity& own, const Error& error);

// Withdraws from an attempt that the rank has not joined: it may be the first to make the
// directory, and without its part the attempt is over.
void withdraw_unjoined(Vfs& vfs, const Identity& own, const Error& error);

// For rank 0: gives the attempt the outcome "aborted" unless it has one; if the disk is full,
// removes it.
void give_attempt_up(Vfs& vfs, const Identity& own);

// Removes the rank's own files once the attempt is aborted.
void remove_own_files(Vfs& vfs, const Identity& own);

}  // namespace deepfreeze

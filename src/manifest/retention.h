// Which checkpoints stay. The choice is pure; collect_garbage carries it out.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "deepfreeze/options.h"
#include "manifest/run_directory.h"

namespace deepfreeze {

// Attempts to delete: aborted ones always, then committed ones, oldest first, then those in doubt
// (in_doubt.h) of older generations that would go if they were committed. These push out nothing.
// The newest checkpoint and the newest of the current line are never deleted; no committed one is
// if `keep` sets no rule. keep.last (1 if it is not set) counts steps of the current line only;
// abandoned steps go once so many newer ones of the line exist. keep.every and keep.best keep more
// of the line. A checkpoint that is known to hold NaN or infinities is never best, and does not
// push out the line's newest that holds none. Checkpoints of an earlier line, which nobody has
// chosen to leave, stay unless `earlier` says otherwise (decision 0017). A checkpoint that was
// given a tag stays until its tags are removed (decision 0032), and one that parity protects until
// a newer one is protected (decision 0033).
enum class EarlierLines : std::uint8_t { kStay, kGo };
[[nodiscard]] std::vector<AttemptName> expired(const RunListing& listing, const Keep& keep,
                                               EarlierLines earlier = EarlierLines::kStay);

// The newest `last` steps of the line, and its newest without NaN, are made durable: before the
// first deletion, since their process may have died before its last sync. kNotFound: another
// collector was faster.
[[nodiscard]] Status settle_newest(Vfs& vfs, const RunListing& listing, std::size_t last);

// Deletes one checkpoint, whatever rules keep it; one that is gone already is a success. The newest
// that remain are made durable first.
[[nodiscard]] Status delete_checkpoint(Vfs& vfs, const AttemptName& name);

// Reads the run, deletes expired attempts and finishes deletions that were interrupted. An attempt
// in doubt is aborted first. Attempts with a fault, and other undecided ones, are left alone. Safe
// beside other collectors and readers. The first error ends it.
struct Collection {
  bool dry_run = false;  // only reports
  EarlierLines earlier = EarlierLines::kStay;
  // Committed attempts of the listing that stay for a reason of the caller's, such as a tier that
  // waits for them. May be empty.
  std::function<std::vector<AttemptName>(const RunListing&)> held = {};
};
struct GarbageReport {
  std::vector<AttemptName> removed;
  std::uint64_t bytes_freed = 0;  // by the manifests of the deleted checkpoints
};
[[nodiscard]] Result<GarbageReport> collect_garbage(Vfs& vfs, const Keep& keep,
                                                    const Collection& how = {});

}  // namespace deepfreeze

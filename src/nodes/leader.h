// The parts that the leader of a node needs to commit, and to answer others. References among them
// are the caller's and outlive every call. Any thread, if the Vfs and the Mail allow it.
#pragma once

#include <chrono>

#include "format/records.h"
#include "nodes/ledger.h"
#include "nodes/mail.h"
#include "storage/vfs.h"

namespace deepfreeze {

struct Leader {
  Vfs& vfs;  // of the node's near directory
  Mail& mail;
  Ledger& ledger;
  GenerationRecord claim;  // of the job, as it lies in every node's directory

  [[nodiscard]] bool decides() const { return ledger.own() == 0; }
};

inline constexpr int kLettersAtOnceMax = 256;

// Waits so long for a letter, and takes it and those that have come behind it. Rank 0 answers.
// False, and at once, if none will come any more.
[[nodiscard]] bool take_letters(const Leader& leader, std::chrono::milliseconds timeout);

// For rank 0: the outcome of an attempt in its directory. An outcome is made durable before it is
// returned as LinkDecided; LinkGone: an attempt of the leader's claim that its directory, in place
// and with that claim, does not have. LinkUnknown is everything else.
[[nodiscard]] LinkMessage outcome_on_disk(const Leader& leader, const LinkAttempt& attempt);

}  // namespace deepfreeze

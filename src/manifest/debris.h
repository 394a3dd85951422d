// Deletes files that no reader counts and no process will finish. Stateless; any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "manifest/run_survey.h"

namespace deepfreeze {

inline constexpr std::chrono::hours kTemporaryAge{1};  // younger ones may be somebody's

struct Leaving {
  std::string name;  // below the run's root
  std::uint64_t bytes = 0;
  std::string why;  // it was left
};

struct DebrisReport {
  std::vector<Leaving> deleted;
  std::vector<Leaving> left;  // found, and not deleted
  bool failed = false;        // some of `left` for an error, not by a rule
};

// Deletes some of the oddities that survey_run() has just found in this listing: half-deleted
// attempts, aborted ones, undecided ones that are fenced (they are aborted first, by the commit
// protocol), and old temporary files of the run and of committed attempts. Left alone: an attempt
// that holds a foreign name, a file that is not old, and everything else. The age of a file runs
// from its last write, by the file system's clock, to now, by this machine's clock.
[[nodiscard]] DebrisReport delete_debris(Vfs& vfs, const RunListing& listing,
                                         std::span<const Oddity> found);

}  // namespace deepfreeze

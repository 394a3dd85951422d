// One pass over the checkpoints of some runs, which begins with the one that was not read for
// longest. Writes nothing but its memory (manifest/scrub_memory.h). One thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/rate_limit.h"
#include "inspect/checkup.h"
#include "manifest/scrub_memory.h"

namespace deepfreeze {

struct ScrubbedRun {
  std::string path;
  std::string run_id;  // empty if it could not be opened
  ScrubRecord memory;
  bool remembers = true;
  std::string read_through_cache;  // as DeviceReader says
  Findings findings{.deep = true};
  std::vector<Error> errors;     // not opened or not read, for no fault of the bytes
  std::size_t unread_count = 0;  // checkpoints for which there was no time
  [[nodiscard]] bool good() const { return findings.good() && errors.empty(); }
};

struct ScrubLimits {
  // The checkpoint in hand is finished, and at least one is read: otherwise a pass whose time is
  // always up would never get to it.
  std::optional<std::chrono::seconds> time_max;
  std::function<Monotonic::time_point()> now = Monotonic::now;  // tests bring their own
};

// Data of a file that several checkpoints share is read once. Borrows `limit`. Between their turns
// the runs' files are closed.
[[nodiscard]] std::vector<ScrubbedRun> scrub_runs(const std::vector<std::string>& paths,
                                                  RateLimit& limit, const ScrubLimits& limits,
                                                  const Watch& watch);

}  // namespace deepfreeze

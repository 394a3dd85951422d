// One pass over the checkpoints of some runs: the one first that was not read for longest. Writes
// nothing but its memory (manifest/scrub_memory.h). One thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/checkup.h"
#include "manifest/scrub_memory.h"
#include "restore/device_reader.h"

namespace deepfreeze {

struct ScrubbedRun {
  std::string path;
  std::optional<OpenedDevice> device;  // empty where it could not be opened
  ScrubRecord memory;
  bool remembers = true;
  Findings findings{.deep = true};
  std::vector<Error> errors;     // what could not be opened or read, for no fault of its bytes
  std::size_t unread_count = 0;  // checkpoints for which there was no time
  [[nodiscard]] bool good() const { return findings.good() && errors.empty(); }
};

struct ScrubLimits {
  std::optional<std::chrono::seconds> time_max;  // the checkpoint in hand is finished
};

// Borrows `limit`.
[[nodiscard]] std::vector<ScrubbedRun> scrub_runs(const std::vector<std::string>& paths,
                                                  RateLimit& limit, const ScrubLimits& limits,
                                                  const Console& console);

}  // namespace deepfreeze

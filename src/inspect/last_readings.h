// When each checkpoint of a run was last read in full, from the device, and with which result.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "inspect/checkup.h"
#include "restore/opened_run.h"

namespace deepfreeze {

struct LastReading {
  AttemptName attempt;
  std::int64_t written_micros = 0;
  std::optional<std::int64_t> read_micros;  // empty: never, as far as the run remembers
  bool good = false;                        // only with read_micros
};

// The last readings of all committed checkpoints, newest first. Read-only.
[[nodiscard]] std::vector<LastReading> last_readings(const OpenedRun& run);

// Adds the readings just made to the run's memory. A run that can't be written remembers nothing,
// which is no error: the readings are reported all the same.
using Reading = std::pair<AttemptName, Verdict>;
void remember_readings(Vfs& vfs, const std::string& run_id, const std::vector<Reading>& readings);

}  // namespace deepfreeze

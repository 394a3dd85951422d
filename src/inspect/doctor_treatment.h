// The changes that the doctor makes on request, through the functions of the protocol.
#pragma once

#include <string>
#include <vector>

#include "inspect/reading.h"
#include "manifest/debris.h"
#include "restore/opened_run.h"

namespace deepfreeze {

struct Mended {
  std::string place;  // below the run's root
  std::string how;
};
struct NotMended {
  std::string place;
  std::string why;
};

struct Repairs {
  std::vector<Mended> mended;
  std::vector<NotMended> refused;
};

// Repairs the run's record, and manifests of attempts whose data is whole; lost data stays lost.
[[nodiscard]] Repairs repair_run(const OpenedRun& run, const std::vector<Oddity>& found,
                                 const Watch& watch);

// Deletes debris if the run's record is whole; otherwise deletes nothing, and the report says so.
[[nodiscard]] DebrisReport tidy_run(const OpenedRun& run, const std::vector<Oddity>& found);

}  // namespace deepfreeze

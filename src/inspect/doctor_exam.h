// The complaints about one run: each with its meaning and its remedy. Read-only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "inspect/last_readings.h"
#include "inspect/reading.h"
#include "manifest/run_survey.h"
#include "restore/opened_run.h"
#include "restore/snapshot.h"

namespace deepfreeze {

enum class Weight : std::uint8_t {
  kFault,   // something that was promised is damaged
  kDebris,  // it takes space and no reader counts it
  kNote,    // worth knowing
};

struct Complaint {
  std::string_view kind;  // stable, for --json
  Weight weight = Weight::kNote;
  std::string place;  // below the run's root; any bytes
  std::string detail;
  std::uint64_t bytes = 0;
  std::string_view means;
  std::string remedy;
  std::vector<std::string> tensors = {};
};

// Those of one weight keep their order.
[[nodiscard]] std::vector<Complaint> heaviest_first(const std::vector<Complaint>& complaints);

struct ExamSettings {
  bool read_all = false;  // all data too, not only names, records and headers
};

// Faults that the last full reading of a checkpoint found, told again while nobody reads it.
[[nodiscard]] std::vector<Complaint> remembered_faults(const std::vector<LastReading>& readings);

// `found` is the survey of the same listing.
[[nodiscard]] std::vector<Complaint> examine(const OpenedRun& run, const std::vector<Oddity>& found,
                                             const ExamSettings& settings, const Watch& watch);

}  // namespace deepfreeze

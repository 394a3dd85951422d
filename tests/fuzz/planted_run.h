// A run's directory on a simulated disk: a good checkpoint, and over it whatever an input says.
//
// An input is text. A line that begins with '@' begins a file; the rest of the line is its path
// below the run, all up to the next such line its content:
//
//   @deepfreeze.json                          these bytes
//   {torn
//   @generation-00000003.json                 members of a record: the checksum is put in front
//   "kind":"generation","format_version":1,…
//   @step-…/rank-….safetensors                JSON of a header: framed, and data of zeros follows
//   {"__metadata__":{"deepfreeze.crc32c":…
//   @step-…/manifest.json                     a crash's or an attacker's change of the file:
//   !cut 100                                  !cut N, !zero N, !flip BIT, !copy PATH, !gone, !dir
//
// Paths that no directory can hold are passed over. {run}, {good} and {new} stand for the run's id,
// the good attempt's directory and that of an attempt that is not there.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "format/records.h"
#include "support/sim_disk.h"

namespace deepfreeze {

inline constexpr std::string_view kPlantedRunId = "0123456789abcdef";
inline constexpr AttemptName kGoodAttempt{7, 0xaa};
inline constexpr AttemptName kNewAttempt{9, 0xcc};

// The run before anything is planted: run file, a claim, one committed checkpoint.
[[nodiscard]] const SimDisk& good_run();
[[nodiscard]] const Manifest& good_manifest();

struct PlantedRun {
  std::unique_ptr<SimDisk> disk;
  bool good_is_touched = false;  // something was done in the good attempt's directory
};
[[nodiscard]] PlantedRun plant_run(std::string_view input);

}  // namespace deepfreeze

// The run that is attacked: the good checkpoint of planted_run.h, and a newer one, the victim.
#pragma once

#include <memory>
#include <string>

#include "fuzz/planted_run.h"

namespace deepfreeze {

inline constexpr std::uint64_t kVictimGeneration = 2;

struct Victim {
  std::unique_ptr<SimDisk> disk;
  Manifest manifest;
};
[[nodiscard]] Victim make_victim();

// Below the run.
[[nodiscard]] std::string victim_manifest_path();
[[nodiscard]] std::string victim_part_path();
[[nodiscard]] std::string victim_claim_path();

// JSON texts; of the header without its padding.
[[nodiscard]] std::string victim_header();
[[nodiscard]] std::string victim_manifest();
[[nodiscard]] std::string victim_claim();
[[nodiscard]] std::string victim_run_file();

// Puts another header before the victim's data, and has the manifest vouch for it.
void forge_header(Victim& victim, std::string_view json);

}  // namespace deepfreeze

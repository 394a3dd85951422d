#include "attacks/victim.h"

#include <algorithm>

#include "crash/attempt_maker.h"
#include "format/header_fixture.h"
#include "fuzz/framed.h"

namespace deepfreeze {
namespace {

Identity victim_identity() {
  const Point point{kVictimGeneration, kNewAttempt.step, 2, kNewAttempt.attempt_id};
  return make_identity(std::string(kPlantedRunId), point);
}

GenerationRecord claim_record() {
  const Point good{1, kGoodAttempt.step, 1, kGoodAttempt.attempt_id};
  return {.run_id = std::string(kPlantedRunId),
          .generation = kVictimGeneration,
          .claimant = 6,
          .resumed_from = good,
          .wall_micros = 2};
}

std::string contents(const std::string& path) {
  static const Victim victim = make_victim();
  return victim.disk->contents(path).value();
}

std::string as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

Victim make_victim() {
  Victim victim{.disk = good_run().clone(), .manifest = {}};
  victim.disk->plant(victim_claim_path(), encode_generation(claim_record()));
  victim.manifest = save_attempt(*victim.disk, victim_identity()).value();
  return victim;
}

std::string victim_manifest_path() {
  return join_name(attempt_dir_name(kNewAttempt), kManifestFile);
}
std::string victim_part_path() {
  return join_name(attempt_dir_name(kNewAttempt), sealed_file_name({}));
}
std::string victim_claim_path() { return generation_file_name(kVictimGeneration); }

std::string victim_header() {
  const std::string file = contents(victim_part_path());
  const std::string header = file.substr(0, file.size() - kTestDataBytes);
  const auto bytes = std::as_bytes(std::span(header));
  return json_of({bytes.begin(), bytes.end()});
}
std::string victim_manifest() { return contents(victim_manifest_path()); }
std::string victim_claim() { return contents(victim_claim_path()); }
std::string victim_run_file() { return contents(std::string(kRunFile)); }

void forge_header(Victim& victim, std::string_view json) {
  const std::vector<std::byte> header = framed_header(json);
  const std::string file = victim.disk->contents(victim_part_path()).value();
  const std::string forged = as_text(header) + file.substr(file.size() - kTestDataBytes);
  victim.disk->plant(victim_part_path(), forged);
  victim.manifest.files.front().bytes = forged.size();
  victim.manifest.files.front().header_crc = checked_header_crc(header).value();
  victim.disk->plant(victim_manifest_path(), encode_manifest(victim.manifest));
}

}  // namespace deepfreeze

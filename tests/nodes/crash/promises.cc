#include "nodes/crash/promises.h"

#include <fmt/format.h>

#include <map>

#include "crash/attempt_maker.h"
#include "manifest/run_directory.h"
#include "nodes/crash/claim_model.h"

namespace deepfreeze::nodes_test {
namespace {

using Broken = std::optional<std::string>;

bool has_file(Machine& machine, const Manifest& manifest, const ManifestFile& file) {
  const AttemptName name{manifest.point.step, manifest.point.attempt_id};
  const std::string path = join_name(attempt_dir_name(name), file.name);
  const auto part = read_part_header(*machine.disk, path);
  return part && part->crc == file.header_crc && part->file_bytes == file.bytes &&
         verify_part(*machine.disk, path);
}

Broken lost_file(const Machines& machines, const Manifest& manifest) {
  for (const ManifestFile& file : manifest.files) {
    const bool is_there = std::ranges::any_of(
        machines, [&](const auto& machine) { return has_file(*machine, manifest, file); });
    if (!is_there) return fmt::format("files: {} of step {}", file.name, manifest.point.step);
  }
  return {};
}

}  // namespace

Broken broken_promise(const Machines& machines, const std::vector<Told>& told) {
  std::map<std::uint64_t, Manifest> outcomes;
  for (const auto& machine : machines) {
    const auto listing = read_run(*machine->disk);
    if (!listing) return "run: " + listing.error().message();
    for (const AttemptState& attempt : listing->attempts) {
      if (attempt.fault) return "record: " + attempt.fault->message();
      if (!attempt.manifest) continue;
      const auto [other, is_first] = outcomes.emplace(attempt.name.step, *attempt.manifest);
      const bool commits = attempt.committed() || other->second.outcome == Outcome::kCommitted;
      if (commits && other->second != *attempt.manifest) {
        return fmt::format("outcome: step {} has two", attempt.name.step);
      }
      if (!attempt.committed()) continue;
      if (auto lost = lost_file(machines, *attempt.manifest)) return lost;
    }
  }
  for (const auto& [point, machine] : told) {
    const auto manifest = read_manifest(*machine->disk, {point.step, point.attempt_id}, "");
    if (!manifest || manifest->outcome != Outcome::kCommitted) {
      return fmt::format("local: step {} is not on {:x}", point.step, machine->digits);
    }
  }
  return {};
}

Broken undecided_after_claim(const Machines& machines) {
  for (const auto& machine : machines) {
    const auto undecided = undecided_in(*machine->disk);
    if (!undecided) return "undecided: " + undecided.error().message();
    if (undecided->empty()) continue;
    return fmt::format("undecided: {} on {:x}", attempt_dir_name(undecided->front()),
                       machine->digits);
  }
  return {};
}

}  // namespace deepfreeze::nodes_test

#include "inspect/doctor_exam.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/try.h"
#include "inspect/doctor_words.h"
#include "inspect/text.h"
#include "manifest/node_files.h"
#include "restore/repair_manifest.h"

namespace deepfreeze {
namespace {

// Whether --repair would get so far as to read the data.
std::string repair_outlook(const OpenedRun& run, const AttemptName& name) {
  const auto plan = plan_repair(*run.vfs, run.listing, name);
  if (plan) return std::string(words_for(OddityKind::kManifestDamaged).remedy);
  const std::string_view copy =
      run.listing.node ? "; the directories of the other nodes have the same manifest" : "";
  return fmt::format("it can't be repaired: {}{}", plan.error().message(), copy);
}

Complaint complaint_of(const OpenedRun& run, const Oddity& oddity) {
  Complaint complaint = complaint_of(words_for(oddity.kind), oddity.name, oddity.detail);
  complaint.bytes = oddity.bytes;
  if (oddity.kind == OddityKind::kManifestDamaged) {
    complaint.remedy = repair_outlook(run, *oddity.attempt);
  }
  return complaint;
}

Result<std::vector<Fault>> faults_of(const OpenedRun& run, const Manifest& manifest,
                                     bool one_node_only, const ExamSettings& settings,
                                     const Watch& watch) {
  if (!settings.read_all) {
    DF_TRY(HeaderCheck check, verify_headers(*run.vfs, manifest, one_node_only));
    return std::move(check.faults);
  }
  const std::string label = fmt::format("verify step {}", manifest.point.step);
  return verify_attempt(*run.vfs, manifest,
                        {.check_tree = true,
                         .one_node_only = one_node_only,
                         .thread_count = kReadThreads,
                         .on_progress = watch(label, stored_bytes(manifest))});
}

// All of it if the checkpoint is this directory's alone; if its own can't be listed, its files are
// missed.
NodeFiles node_files_here(const OpenedRun& run, const Manifest& manifest) {
  if (is_of_several_nodes(run.listing, manifest)) {
    if (auto own = list_node_files(*run.vfs, manifest)) return std::move(*own);
  }
  return {.manifest = manifest};
}

void add_faults(const OpenedRun& run, const AttemptState& attempt, const ExamSettings& settings,
                const Watch& watch, std::vector<Complaint>& complaints) {
  const std::string directory = attempt_dir_name(attempt.name);
  const NodeFiles own = node_files_here(run, *attempt.manifest);
  if (own.elsewhere > 0) {
    complaints.push_back(
        complaint_of(words_for_files_elsewhere(), directory, files_here(own, *attempt.manifest)));
  }
  const auto faults = faults_of(run, own.manifest, own.elsewhere > 0, settings, watch);
  if (!faults && faults.error().code() == ErrorCode::kGone) return;  // deleted meanwhile
  if (!faults) {
    complaints.push_back(
        complaint_of(words_for_unread_checkpoint(), directory, faults.error().message()));
    return;
  }
  for (const Fault& fault : *faults) {
    const DoctorWords& words =
        fault.unread ? words_for_unread_checkpoint() : words_for_damaged_checkpoint();
    complaints.push_back(complaint_of(words, directory + "/" + fault.file, fault.cause));
    complaints.back().tensors = fault.tensors;
  }
}

}  // namespace

std::vector<Complaint> heaviest_first(const std::vector<Complaint>& complaints) {
  std::vector<Complaint> sorted;
  for (const Weight weight : {Weight::kFault, Weight::kDebris, Weight::kNote}) {
    std::ranges::copy_if(complaints, std::back_inserter(sorted),
                         [&](const Complaint& one) { return one.weight == weight; });
  }
  return sorted;
}

std::vector<Complaint> remembered_faults(const std::vector<LastReading>& readings) {
  std::vector<Complaint> complaints;
  for (const LastReading& reading : readings) {
    if (!reading.read_micros || reading.good) continue;
    complaints.push_back(complaint_of(words_for_remembered_fault(),
                                      attempt_dir_name(reading.attempt),
                                      "it was read " + utc_time(*reading.read_micros)));
  }
  return complaints;
}

std::vector<Complaint> examine(const OpenedRun& run, const std::vector<Oddity>& found,
                               const ExamSettings& settings, const Watch& watch) {
  std::vector<Complaint> complaints;
  for (const Oddity& oddity : found) complaints.push_back(complaint_of(run, oddity));
  for (const AttemptState& attempt : run.listing.attempts) {
    if (!attempt.committed()) continue;
    add_faults(run, attempt, settings, watch, complaints);
  }
  return heaviest_first(complaints);
}

}  // namespace deepfreeze

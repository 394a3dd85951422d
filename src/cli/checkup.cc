#include "cli/checkup.h"

#include <fmt/ostream.h>

#include <algorithm>
#include <ostream>

#include "base/try.h"
#include "cli/fault_output.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "manifest/run_survey.h"

namespace deepfreeze {
namespace {

bool is_bad(const Finding& finding) { return !finding.faults.empty(); }

Result<std::vector<Fault>> verify_with_progress(Vfs& vfs, const Manifest& manifest,
                                                const CheckSettings& settings,
                                                const Console& console) {
  Progress progress(console, fmt::format("{} step {}", settings.verb, manifest.point.step),
                    stored_bytes(manifest));
  const ReadSettings reading{.check_tree = settings.deep,
                             .thread_count = settings.thread_count,
                             .on_progress = [&](std::uint64_t done) { progress.update(done); }};
  return verify_attempt(vfs, manifest, reading);
}

// Fills in the facts about a committed attempt. kGone: it was removed meanwhile.
Status read_committed(Vfs& vfs, const Manifest& manifest, const CheckSettings& settings,
                      const Console& console, Finding& finding) {
  finding.point = manifest.point;
  finding.bytes = stored_bytes(manifest);
  DF_TRY(finding.faults, verify_with_progress(vfs, manifest, settings, console));
  if (!settings.deep) return {};
  auto unlisted = unlisted_names(vfs, manifest);
  if (unlisted) {
    finding.unlisted = std::move(*unlisted);
  } else if (unlisted.error().code() == ErrorCode::kNotFound) {
    return fail(ErrorCode::kGone, unlisted.error().message());
  } else {
    finding.faults.push_back(fault_of_error(finding.directory, unlisted.error()));
  }
  return {};
}

Verdict verdict_of(const std::vector<Fault>& faults) {
  if (faults.empty()) return Verdict::kGood;
  return std::ranges::all_of(faults, &Fault::unread) ? Verdict::kUnread : Verdict::kFault;
}

nlohmann::ordered_json finding_json(const Finding& finding) {
  nlohmann::ordered_json json{{"directory", finding.directory}};
  if (finding.point) json.update(point_members(*finding.point));
  json["bytes"] = finding.bytes;
  json["faults"] = faults_json(finding.faults);
  return json;
}

void print_finding(std::ostream& out, const Finding& finding) {
  fmt::print(out, "{} {} {}\n", finding.directory, is_bad(finding) ? "FAULT" : "ok",
             human_bytes(finding.bytes));
  for (const Fault& fault : finding.faults) print_fault(out, fault);
  if (finding.unlisted.empty()) return;
  fmt::print(out, "  its manifest does not list {}\n", readable(some_of(finding.unlisted)));
}

}  // namespace

bool Findings::good() const { return records.empty() && std::ranges::none_of(attempts, is_bad); }

std::size_t Findings::bad_count() const {
  return static_cast<std::size_t>(std::ranges::count_if(attempts, is_bad));
}

Result<Verdict> check_attempt(Vfs& vfs, const AttemptState& attempt, const CheckSettings& settings,
                              const Console& console, Findings& findings) {
  Finding finding{.directory = attempt_dir_name(attempt.name), .point = {}};
  if (attempt.undecided()) {
    findings.notes.push_back(finding.directory + ": no outcome yet; half-written or in progress");
    return Verdict::kNothing;
  }
  if (attempt.fault) {
    finding.faults.push_back(fault_of_error(std::string(kManifestFile), *attempt.fault));
  } else if (attempt.committed()) {
    const Status read = read_committed(vfs, *attempt.manifest, settings, console, finding);
    if (!read && read.error().code() == ErrorCode::kGone) {
      findings.notes.push_back(finding.directory + ": removed meanwhile");
      return Verdict::kNothing;
    }
    if (!read) return std::unexpected(read.error().within(finding.directory));
  } else {
    return Verdict::kNothing;  // aborted: it promises nothing
  }
  findings.attempts.push_back(std::move(finding));
  return verdict_of(findings.attempts.back().faults);
}

void check_records(const RunListing& listing, Findings& findings) {
  if (listing.run_rebuilt) {
    findings.records.push_back(
        {.file = std::string(kRunFile),
         .cause = "lost or damaged; the next writer rebuilds it from a manifest"});
  }
  for (const Claim& claim : listing.claims) {
    if (claim.record) continue;
    findings.records.push_back({.file = generation_file_name(claim.generation),
                                .cause = "does not verify; the step that it resumed from is lost"});
  }
  for (const AttemptName& name : listing.half_deleted) {
    findings.notes.push_back(attempt_dir_name(name) + ": half deleted; the next gc finishes it");
  }
}

void add_device_note(const std::string& path, Findings& findings) {
  if (path.empty()) return;
  findings.notes.push_back(path +
                           ": its file system takes no direct reads; its cached pages were dropped "
                           "first, as far as the kernel does that");
}

void print_findings(std::ostream& out, const Findings& findings) {
  for (const Fault& fault : findings.records) {
    fmt::print(out, "run record FAULT\n");
    print_fault(out, fault);
  }
  for (const Finding& finding : findings.attempts) print_finding(out, finding);
  for (const std::string& note : findings.notes) fmt::print(out, "note: {}\n", readable(note));
}

nlohmann::ordered_json findings_members(const Findings& findings) {
  nlohmann::ordered_json members{{"good", findings.good()},
                                 {"records", faults_json(findings.records)}};
  members["attempts"] = nlohmann::ordered_json::array();
  for (const Finding& finding : findings.attempts) {
    members["attempts"].push_back(finding_json(finding));
    if (findings.deep) members["attempts"].back()["unlisted"] = finding.unlisted;
  }
  members["notes"] = findings.notes;
  return members;
}

}  // namespace deepfreeze

#include "cli/findings_output.h"

#include <fmt/ostream.h>

#include <ostream>

#include "cli/fault_output.h"
#include "cli/output.h"

namespace deepfreeze {
namespace {

nlohmann::ordered_json finding_json(const Finding& finding) {
  nlohmann::ordered_json json{{"directory", finding.directory}};
  if (finding.point) json.update(point_members(*finding.point));
  json["bytes"] = finding.bytes;
  json["faults"] = faults_json(finding.faults);
  return json;
}

void print_finding(std::ostream& out, const Finding& finding) {
  fmt::print(out, "{} {} {}\n", finding.directory, finding.faults.empty() ? "ok" : "FAULT",
             human_bytes(finding.bytes));
  for (const Fault& fault : finding.faults) print_fault(out, fault);
  if (finding.unlisted.empty()) return;
  fmt::print(out, "  its manifest does not list {}\n", readable(some_of(finding.unlisted)));
}

}  // namespace

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

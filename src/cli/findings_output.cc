#include "cli/findings_output.h"

#include <fmt/ostream.h>

#include <ostream>

#include "cli/fault_output.h"
#include "cli/output.h"

namespace deepfreeze {
namespace {

void write_finding(JsonWriter& json, const Finding& finding, const Findings& all) {
  json.begin_object();
  json.members("directory", finding.directory);
  if (finding.point) write_point_members(json, *finding.point);
  json.members("bytes", finding.bytes, "faults", json_array(finding.faults, write_fault));
  if (all.deep) json.members("unlisted", finding.unlisted);
  if (all.fast) {
    json.members("files", finding.files, "without_checksum", finding.without_checksum);
  }
  json.end_object();
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

void write_findings_members(JsonWriter& json, const Findings& findings, bool good) {
  const auto write = [&](JsonWriter& list, const Finding& finding) {
    write_finding(list, finding, findings);
  };
  json.members("good", good, "records", json_array(findings.records, write_fault), "attempts",
               json_array(findings.attempts, write), "notes", findings.notes);
}

}  // namespace deepfreeze

// deepfreeze verify RUN[@STEP]: reads every byte that a run promises to hold.
#include <fmt/ostream.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <ostream>

#include "base/hex.h"
#include "base/try.h"
#include "cli/console.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/run_ref.h"
#include "manifest/history.h"

namespace deepfreeze {
namespace {

constexpr std::size_t kNamedMax = 8;  // blocks and tensors of one fault, for people

// What was found in one attempt, or in a record of the run itself.
struct Finding {
  std::string directory;  // empty for the run's own records
  std::optional<Point> point;
  std::uint64_t bytes = 0;
  std::vector<Fault> faults;
};

struct Findings {
  std::vector<Finding> attempts;
  std::vector<Fault> records;      // the run file and the claims
  std::vector<std::string> notes;  // worth knowing, not a fault
  [[nodiscard]] bool good() const {
    return records.empty() && std::ranges::all_of(attempts, [](const Finding& finding) {
             return finding.faults.empty();
           });
  }
};

Result<std::vector<Fault>> verify_with_progress(const OpenedRun& run, const Manifest& manifest,
                                                const Console& console) {
  Progress progress(console, fmt::format("verify step {}", manifest.point.step),
                    stored_bytes(manifest));
  const ReadSettings settings{.thread_count = kReadThreads,
                              .on_progress = [&](std::uint64_t done) { progress.update(done); }};
  return verify_attempt(*run.vfs, manifest, settings);
}

Status check_attempt(const OpenedRun& run, const AttemptState& attempt, const Console& console,
                     Findings& findings) {
  Finding finding{.directory = attempt_dir_name(attempt.name), .point = {}, .faults = {}};
  if (attempt.undecided()) {
    findings.notes.push_back(finding.directory + ": no outcome yet; half-written or in progress");
    return {};
  }
  if (attempt.fault) {
    finding.faults.push_back(
        {.file = std::string(kManifestFile), .cause = attempt.fault->message()});
  } else if (attempt.committed()) {
    finding.point = attempt.manifest->point;
    finding.bytes = stored_bytes(*attempt.manifest);
    auto faults = verify_with_progress(run, *attempt.manifest, console);
    if (!faults && faults.error().code() == ErrorCode::kNotFound) {
      findings.notes.push_back(finding.directory + ": removed meanwhile");
      return {};
    }
    if (!faults) return std::unexpected(faults.error().within(finding.directory));
    finding.faults = std::move(*faults);
  } else {
    return {};  // aborted: it promises nothing
  }
  findings.attempts.push_back(std::move(finding));
  return {};
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
                                .cause = "does not verify; where it resumed from is lost"});
  }
  for (const AttemptName& name : listing.half_deleted) {
    findings.notes.push_back(attempt_dir_name(name) + ": half deleted; the next gc finishes it");
  }
}

// A whole run with its records, or every attempt at one step.
Result<Findings> check_run(const OpenedRun& run, const RunRef& ref, const Console& console) {
  Findings findings;
  std::optional<std::uint64_t> step = ref.step;
  if (ref.at && !step) {
    DF_TRY(const Manifest newest, choose(run, ref));
    step = newest.point.step;
  }
  if (!ref.at) check_records(run.listing, findings);
  for (const AttemptState& attempt : run.listing.attempts) {
    if (step && attempt.name.step != *step) continue;
    DF_TRY_VOID(check_attempt(run, attempt, console, findings));
  }
  if (step && findings.attempts.empty()) {
    return fail(ErrorCode::kNotFound,
                fmt::format("{} holds no checkpoint of step {}", run.path, *step));
  }
  return findings;
}

template <class T>
std::string some_of(const std::vector<T>& items) {
  const std::vector<T> first(items.begin(), items.begin() + static_cast<std::ptrdiff_t>(
                                                                std::min(items.size(), kNamedMax)));
  const char* more = items.size() > kNamedMax ? ", …" : "";
  return fmt::format("{}{}", fmt::join(first, ", "), more);
}

void print_fault(const Fault& fault, Console& console) {
  fmt::print(console.out, "  {}: {}\n", printable(fault.file), printable(fault.cause));
  if (fault.blocks.empty()) return;
  fmt::print(console.out, "    blocks {}\n    tensors {}\n", some_of(fault.blocks),
             printable(some_of(fault.tensors)));
}

void print_findings(const Findings& findings, Console& console) {
  for (const Fault& fault : findings.records) {
    fmt::print(console.out, "run record FAULT\n");
    print_fault(fault, console);
  }
  std::size_t bad_count = 0;
  for (const Finding& finding : findings.attempts) {
    const bool good = finding.faults.empty();
    if (!good) ++bad_count;
    fmt::print(console.out, "{} {} {}\n", finding.directory, good ? "ok" : "FAULT",
               human_bytes(finding.bytes));
    for (const Fault& fault : finding.faults) print_fault(fault, console);
  }
  for (const std::string& note : findings.notes) fmt::print(console.out, "note: {}\n", note);
  fmt::print(console.out, "{} checkpoints read, {} with a fault\n", findings.attempts.size(),
             bad_count);
}

nlohmann::ordered_json fault_json(const Fault& fault) {
  return {{"file", fault.file},
          {"cause", fault.cause},
          {"blocks", fault.blocks},
          {"tensors", fault.tensors}};
}

nlohmann::ordered_json faults_json(const std::vector<Fault>& faults) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const Fault& fault : faults) json.push_back(fault_json(fault));
  return json;
}

nlohmann::ordered_json findings_json(const OpenedRun& run, const Findings& findings) {
  nlohmann::ordered_json document = json_document("verify");
  document["run"] = {{"path", run.path}, {"id", run.listing.run.run_id}};
  document["good"] = findings.good();
  document["records"] = faults_json(findings.records);
  document["attempts"] = nlohmann::ordered_json::array();
  for (const Finding& finding : findings.attempts) {
    nlohmann::ordered_json item{{"directory", finding.directory}};
    if (finding.point) item.update(point_members(*finding.point));
    item["bytes"] = finding.bytes;
    item["faults"] = faults_json(finding.faults);
    document["attempts"].push_back(std::move(item));
  }
  document["notes"] = findings.notes;
  return document;
}

Result<ExitCode> run_verify(const std::string& text, Console& console) {
  DF_TRY(const RunRef ref, parse_run_ref(text));
  DF_TRY(const OpenedRun run, open_run(ref.path));
  DF_TRY(const Findings findings, check_run(run, ref, console));
  if (console.json) {
    print_json(console.out, findings_json(run, findings));
  } else {
    print_findings(findings, console);
  }
  return findings.good() ? kExitGood : kExitFault;
}

}  // namespace

Command add_verify(CLI::App& program) {
  CLI::App* app = program.add_subcommand(
      "verify", "Read and check every block of a run or a step; exit 1 on a fault");
  const auto run = std::make_shared<std::string>();  // also held by the parser
  app->add_option("RUN", *run, "RUN, RUN@STEP or RUN@latest")->required();
  app->footer(
      "--json: {run, good, records: [fault], attempts: [{directory, generation, step, save,\n"
      "  attempt, bytes, faults: [fault]}], notes: [text]}, fault: {file, cause, blocks, tensors}");
  return {app, [run](Console& console) { return run_verify(*run, console); }};
}

}  // namespace deepfreeze

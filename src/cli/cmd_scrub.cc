// deepfreeze scrub RUN...: reads all checkpoints from the device, slowly and in the background.
#include <fmt/ostream.h>

#include <algorithm>
#include <memory>
#include <ostream>

#include "base/clock.h"
#include "base/try.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/findings_output.h"
#include "cli/idle_work.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/run_ref.h"
#include "inspect/scrub_pass.h"

namespace deepfreeze {
namespace {

constexpr std::uint64_t kScrubRateUnit = 1024 * 1024;
constexpr std::uint64_t kRateDefault = 64;
constexpr std::uint64_t kScrubRateMax = 1'000'000;  // MiB per second; nothing reads that fast
constexpr std::uint64_t kScrubSecondsMax = 1'000'000'000;

struct ScrubArguments {
  std::vector<std::string> runs;
  std::uint64_t rate = kRateDefault;  // MiB per second; 0: no limit
  std::uint64_t seconds_max = 0;      // 0: to the end
};

struct ScrubReport {
  std::vector<ScrubbedRun> runs;
  std::vector<std::string> notes;
  std::uint64_t bytes = 0;
  double seconds = 0;

  [[nodiscard]] bool good() const { return std::ranges::all_of(runs, &ScrubbedRun::good); }
  [[nodiscard]] bool has_fault() const {
    return std::ranges::any_of(runs, [](const ScrubbedRun& run) { return !run.findings.good(); });
  }
  [[nodiscard]] std::size_t sum(std::size_t (*count)(const ScrubbedRun&)) const {
    std::size_t total = 0;
    for (const ScrubbedRun& run : runs) total += count(run);
    return total;
  }
  [[nodiscard]] std::size_t unread_count() const {
    return sum([](const ScrubbedRun& run) { return run.unread_count; });
  }
};

ScrubReport scrub(const ScrubArguments& arguments, const Console& console) {
  ScrubReport report;
  const auto start = Monotonic::now();
  RateLimit limit(arguments.rate * kScrubRateUnit);
  ScrubLimits limits;
  if (arguments.seconds_max > 0) limits.time_max = std::chrono::seconds(arguments.seconds_max);
  report.notes =
      run_idle([&] { report.runs = scrub_runs(arguments.runs, limit, limits, bars_on(console)); });
  report.bytes = limit.taken();
  report.seconds = seconds_since(start);
  return report;
}

void write_scrubbed(JsonWriter& json, const ScrubbedRun& run) {
  json.begin_object();
  json.members("path", run.path);
  if (!run.run_id.empty()) json.members("id", run.run_id);
  write_findings_members(json, run.findings, run.good());
  json.members("unread", run.unread_count, "errors", json_array(run.errors, write_error));
  json.end_object();
}

void print_report_json(const ScrubReport& report, std::ostream& out) {
  JsonWriter document = json_document("scrub");
  document.members("good", report.good(), "complete", report.unread_count() == 0, "bytes",
                   report.bytes, "seconds", report.seconds, "runs",
                   json_array(report.runs, write_scrubbed), "notes", report.notes);
  print_json(out, std::move(document));
}

void print_report(const ScrubReport& report, std::ostream& out) {
  for (const ScrubbedRun& run : report.runs) {
    fmt::print(out, "run {}\n", readable(run.path));
    print_findings(out, run.findings);
  }
  for (const std::string& note : report.notes) fmt::print(out, "note: {}\n", note);
  fmt::print(out, "{} checkpoints read, {} with a fault, {} not reached; {} in {:.1f} s\n",
             report.sum([](const ScrubbedRun& run) { return run.findings.attempts.size(); }),
             report.sum([](const ScrubbedRun& run) { return run.findings.bad_count(); }),
             report.unread_count(), human_bytes(report.bytes), report.seconds);
}

// The pass looks for faults, so a fault decides the exit code, whatever else went wrong.
ExitCode exit_code(const ScrubReport& report) {
  if (report.has_fault()) return kExitFault;
  return report.good() ? kExitGood : kExitFailure;
}

Result<ExitCode> run_scrub(const ScrubArguments& arguments, Console& console) {
  for (const std::string& run : arguments.runs) DF_TRY_VOID(whole_run_path(run));
  const ScrubReport report = scrub(arguments, console);
  for (const ScrubbedRun& run : report.runs) {
    for (const Error& error : run.errors) {
      fmt::print(console.err, "deepfreeze scrub: {}\n", readable(error.message()));
    }
  }
  if (console.json) {
    print_report_json(report, console.out);
  } else {
    print_report(report, console.out);
  }
  return exit_code(report);
}

}  // namespace

Command add_scrub(Program& program) {
  Verb verb = program.add_verb(
      "scrub", "Verify runs from the device, slowly and at idle priority; exit 1 on a fault");
  const auto arguments = std::make_shared<ScrubArguments>();  // also held by the parser
  verb.values("RUN", arguments->runs, "The runs' directories").required();
  verb.value("--rate", arguments->rate, "MiB per second at most; 0 for no limit")
      .default_in_help()
      .between(0, kScrubRateMax);
  verb.value("--max-seconds", arguments->seconds_max,
             "Begin no checkpoint after this many seconds, except the first")
      .between(1, kScrubSecondsMax);
  verb.footer(
      "Begins with the checkpoint that was not read for longest, or not since it was written;\n"
      "scrub.json in each run records the readings, so a pass that was stopped is continued.\n"
      "It is a hint, and may be deleted.\n"
      "--json: {good, complete, bytes, seconds, runs: [{path, id, good, records: [fault],\n"
      "  attempts: [{directory, generation, step, save, attempt, bytes, faults: [fault],\n"
      "  unlisted: [name]}], notes: [text], unread, errors: [{code, message}]}], notes: [text]},\n"
      "  fault: {file, cause, blocks, tensors}, and also_in: [path] if other checkpoints share the "
      "file.\nThe data of such a file is read once");
  return {verb, [arguments](Console& console) { return run_scrub(*arguments, console); }};
}

}  // namespace deepfreeze

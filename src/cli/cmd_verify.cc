// deepfreeze verify RUN[@STEP]: reads every byte that a run promises to hold; with --fast, no data.
#include <fmt/ostream.h>

#include <memory>
#include <ostream>

#include "base/try.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/findings_output.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/run_ref.h"
#include "inspect/checkup.h"
#include "inspect/last_readings.h"
#include "manifest/node_files.h"
#include "restore/device_reader.h"

namespace deepfreeze {
namespace {

struct VerifyArguments {
  std::string run;
  bool deep = false;
  bool fast = false;
};

// A whole run with its records, or every attempt at one step.
Result<Findings> check_run(const OpenedRun& run, const RunRef& ref, const CheckSettings& settings,
                           const Watch& watch, std::vector<Reading>& readings) {
  Findings findings{.deep = settings.deep, .fast = settings.fast};
  std::optional<std::uint64_t> step = ref.step;
  if (ref.at && !step) {
    DF_TRY(const Manifest newest, choose(run, ref));
    step = newest.point.step;
  }
  if (!ref.at) check_records(run.listing, findings);
  for (const AttemptState& attempt : run.listing.attempts) {
    if (step && attempt.name.step != *step) continue;
    CheckSettings own = settings;
    // A single step must be whole.
    own.is_of_several_nodes =
        !ref.at && attempt.committed() && is_of_several_nodes(run.listing, *attempt.manifest);
    DF_TRY(const Verdict verdict, check_attempt(*run.vfs, attempt, own, watch, findings));
    readings.emplace_back(attempt.name, verdict);
  }
  if (step && findings.attempts.empty()) {
    return fail(ref.step ? ErrorCode::kNotFound : ErrorCode::kGone,
                fmt::format("{} holds no checkpoint of step {}", run.path, *step));
  }
  return findings;
}

ExitCode tell(const OpenedRun& run, const Findings& findings, Console& console) {
  if (console.json) {
    JsonWriter document = json_document("verify", run);
    write_findings_members(document, findings, findings.good());
    print_json(console.out, std::move(document));
  } else {
    print_findings(console.out, findings);
    fmt::print(console.out, "{} checkpoints {}, {} with a fault\n", findings.attempts.size(),
               findings.fast ? "looked at" : "read", findings.bad_count());
  }
  return findings.good() ? kExitGood : kExitFault;
}

Result<ExitCode> verify(const RunRef& ref, Console& console) {
  DF_TRY(const OpenedRun run, open_run(ref.path));
  std::vector<Reading> readings;  // perhaps of pages in memory, so the run does not remember them
  DF_TRY(const Findings findings, check_run(run, ref, {}, bars_on(console), readings));
  return tell(run, findings, console);
}

// Nobody has read anything, so the run does not remember it.
Result<ExitCode> verify_fast(const RunRef& ref, Console& console) {
  DF_TRY(const OpenedRun run, open_run(ref.path));
  std::vector<Reading> readings;
  DF_TRY(Findings findings, check_run(run, ref, {.fast = true}, bars_on(console), readings));
  add_fast_notes(findings);
  return tell(run, findings, console);
}

Result<ExitCode> verify_deep(const RunRef& ref, Console& console) {
  RateLimit unlimited(0);
  DF_TRY(const OpenedDevice device, open_run_on_device(ref.path, unlimited));
  std::vector<Reading> readings;
  DF_TRY(Findings findings, check_run(device.run, ref, {.deep = true}, bars_on(console), readings));
  remember_readings(*device.run.vfs, device.run.listing.run.run_id, readings);
  add_device_note(device.reader->read_through_cache(), findings);
  return tell(device.run, findings, console);
}

Result<ExitCode> run_verify(const VerifyArguments& arguments, Console& console) {
  if (arguments.deep && arguments.fast) {
    return fail(ErrorCode::kInvalidArgument, "--deep reads everything and --fast no data");
  }
  DF_TRY(const RunRef ref, parse_run_ref(arguments.run));
  return list_anew_while_gone([&] {
    if (arguments.fast) return verify_fast(ref, console);
    return arguments.deep ? verify_deep(ref, console) : verify(ref, console);
  });
}

}  // namespace

Command add_verify(Program& program) {
  Verb verb = program.add_verb("verify",
                               "Read and check every block of a run or a step; exit 1 on a fault");
  const auto arguments = std::make_shared<VerifyArguments>();  // also held by the parser
  verb.value("RUN", arguments->run, "RUN, RUN@STEP, RUN@latest or RUN@best").required();
  verb.flag("--deep", arguments->deep,
            "Read headers and records from the device too, past the page cache; decode state\n"
            "trees; name files that no manifest lists; scrub.json remembers when, for doctor");
  verb.flag("--fast", arguments->fast,
            "Read records and headers alone, no data: compare sizes and, in an object store, the\n"
            "checksum that the store keeps of each file; notes say what was not read");
  verb.footer(
      "--json: {run, good, records: [fault], attempts: [{directory, generation, step, save,\n"
      "  attempt, bytes, faults: [fault]}], notes: [text]}, fault: {file, cause, blocks, "
      "tensors};\n"
      "  with --deep each attempt has unlisted: [name] as well, with --fast files, a number, and\n"
      "  without_checksum: [name]");
  return {verb, [arguments](Console& console) { return run_verify(*arguments, console); }};
}

}  // namespace deepfreeze

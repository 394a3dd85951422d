// deepfreeze doctor RUN: the run's defects, and the remedies for them.
#include <fmt/ostream.h>

#include <algorithm>
#include <memory>
#include <ostream>

#include "base/try.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/fault_output.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/readings_output.h"
#include "cli/run_ref.h"
#include "inspect/doctor_exam.h"
#include "inspect/doctor_treatment.h"
#include "inspect/last_readings.h"
#include "inspect/tier_exam.h"

namespace deepfreeze {
namespace {

struct DoctorArguments {
  std::string run;
  std::vector<std::string> tiers;
  bool verify = false;
  bool repair = false;
  bool delete_debris = false;
};

struct Visit {
  OpenedRun run;  // as it is afterwards
  Repairs repairs;
  DebrisReport debris;
  std::vector<Complaint> complaints;
  bool blocks_read = false;
  std::vector<LastReading> readings;
  std::vector<TierState> tiers;
  std::optional<Error> error;  // the reason why the run could not be read again

  // A requested change was not made.
  [[nodiscard]] bool failed() const {
    return debris.failed || !repairs.refused.empty() || error.has_value();
  }
  [[nodiscard]] bool good() const {
    return std::ranges::none_of(
        complaints, [](const Complaint& complaint) { return complaint.weight == Weight::kFault; });
  }
};

std::string_view to_string(Weight weight) {
  if (weight == Weight::kFault) return "fault";
  return weight == Weight::kDebris ? "debris" : "note";
}

Result<std::vector<Oddity>> look_again(OpenedRun& run) {
  DF_TRY(run.listing, read_run(*run.vfs));
  return survey_run(*run.vfs, run.listing);
}

// Reads the run again after a change, so that the report shows the actual state, not the intended
// one.
Status treat(const DoctorArguments& arguments, const Console& console, Visit& visit) {
  DF_TRY(std::vector<Oddity> found, survey_run(*visit.run.vfs, visit.run.listing));
  if (arguments.repair) {
    visit.repairs = repair_run(visit.run, found, bars_on(console));
    DF_TRY(found, look_again(visit.run));
  }
  if (arguments.delete_debris) {
    visit.debris = tidy_run(visit.run, found);
    DF_TRY(found, look_again(visit.run));
  }
  visit.complaints = examine(visit.run, found, {.read_all = arguments.verify}, bars_on(console));
  visit.blocks_read = arguments.verify;
  visit.readings = last_readings(visit.run);
  if (visit.blocks_read) return {};
  const std::vector<Complaint> remembered = remembered_faults(visit.readings);
  visit.complaints.insert(visit.complaints.begin(), remembered.begin(), remembered.end());
  return {};
}

// The tiers' complaints come after the run's own, of each weight.
void look_at_tiers(const DoctorArguments& arguments, const Console& console, Visit& visit) {
  std::vector<RunListing> nearer = {visit.run.listing};
  for (const std::string& path : arguments.tiers) {
    visit.tiers.push_back(examine_tier(visit.run, nearer, open_tier_place(path),
                                       {.read_all = arguments.verify}, bars_on(console)));
    const TierState& tier = visit.tiers.back();
    if (tier.listing) nearer.push_back(*tier.listing);
    visit.complaints.insert(visit.complaints.end(), tier.complaints.begin(), tier.complaints.end());
  }
  visit.complaints = heaviest_first(visit.complaints);
}

// Reports the changes even if the run can't be read any more.
Result<Visit> visit_run(const DoctorArguments& arguments, const Console& console) {
  Visit visit;
  DF_TRY(visit.run, open_whole_run(arguments.run));
  const Status treated = treat(arguments, console, visit);
  if (!treated) visit.error = treated.error();
  look_at_tiers(arguments, console, visit);
  return visit;
}

void write_complaint(JsonWriter& json, const Complaint& complaint) {
  json.object("kind", complaint.kind, "weight", to_string(complaint.weight), "place",
              complaint.place, "detail", complaint.detail, "bytes", complaint.bytes, "tensors",
              complaint.tensors, "means", complaint.means, "remedy", complaint.remedy);
}

void write_leaving(JsonWriter& json, const Leaving& leaving) {
  json.begin_object();
  json.members("place", leaving.name, "bytes", leaving.bytes);
  if (!leaving.why.empty()) json.members("why", leaving.why);
  json.end_object();
}

void write_count(JsonWriter& json, std::string_view name, const CheckpointsCount& count) {
  json.key(name);
  json.object("checkpoints", count.count, "bytes", count.bytes);
}

void write_tier(JsonWriter& json, const TierState& tier) {
  json.begin_object();
  json.members("path", tier.path, "newest_step", tier.newest_step, "free_bytes", tier.free_bytes);
  write_count(json, "behind", tier.behind);
  write_count(json, "absent", tier.absent);
  json.end_object();
}

void print_visit_json(const Visit& visit, std::ostream& out) {
  const auto write_mended = [](JsonWriter& json, const Mended& mended) {
    json.object("place", mended.place, "how", mended.how);
  };
  const auto write_refused = [](JsonWriter& json, const NotMended& refused) {
    json.object("place", refused.place, "why", refused.why);
  };
  JsonWriter document = json_document("doctor", visit.run);
  document.members("good", visit.good() && !visit.error, "failed", visit.failed(), "findings",
                   json_array(visit.complaints, write_complaint), "blocks_read", visit.blocks_read,
                   "checkpoints", json_array(visit.readings, write_reading), "repaired",
                   json_array(visit.repairs.mended, write_mended), "not_repaired",
                   json_array(visit.repairs.refused, write_refused), "deleted",
                   json_array(visit.debris.deleted, write_leaving), "not_deleted",
                   json_array(visit.debris.left, write_leaving));
  document.members("tiers", json_array(visit.tiers, write_tier));
  if (visit.error) {
    document.key("error");
    write_error(document, *visit.error);
  }
  print_json(out, std::move(document));
}

void print_complaint(const Complaint& complaint, std::ostream& out) {
  const std::string size =
      complaint.bytes > 0 ? fmt::format(", {}", human_bytes(complaint.bytes)) : "";
  fmt::print(out, "{} {}: {}{}\n", to_string(complaint.weight), complaint.kind,
             readable(complaint.place), size);
  if (!complaint.detail.empty()) fmt::print(out, "  {}\n", readable(complaint.detail));
  if (!complaint.tensors.empty()) {
    fmt::print(out, "  tensors {}\n", readable(some_of(complaint.tensors)));
  }
  fmt::print(out, "  {}\n  {}\n", complaint.means, readable(complaint.remedy));
}

void print_treatment(const Visit& visit, std::ostream& out) {
  for (const Mended& mended : visit.repairs.mended) {
    fmt::print(out, "repaired {}: {}\n", mended.place, mended.how);
  }
  for (const NotMended& refused : visit.repairs.refused) {
    fmt::print(out, "not repaired {}: {}\n", refused.place, readable(refused.why));
  }
  std::uint64_t bytes = 0;
  for (const Leaving& gone : visit.debris.deleted) {
    bytes += gone.bytes;
    fmt::print(out, "deleted {}, {}\n", readable(gone.name), human_bytes(gone.bytes));
  }
  for (const Leaving& left : visit.debris.left) {
    fmt::print(out, "not deleted {}: {}\n", readable(left.name), readable(left.why));
  }
  if (bytes > 0) fmt::print(out, "{} freed\n", human_bytes(bytes));
}

void print_tier(const TierState& tier, std::ostream& out) {
  fmt::print(out, "tier {}: newest {}; {} newer checkpoints are not there, {}; {}\n",
             readable(tier.path),
             tier.newest_step ? fmt::format("step {}", *tier.newest_step) : "none",
             tier.behind.count, human_bytes(tier.behind.bytes),
             tier.free_bytes ? human_bytes(*tier.free_bytes) + " free" : "free space not known");
}

void print_visit(const Visit& visit, std::ostream& out) {
  print_treatment(visit, out);
  for (const TierState& tier : visit.tiers) print_tier(tier, out);
  for (const Complaint& complaint : visit.complaints) print_complaint(complaint, out);
  if (!visit.blocks_read) print_readings(visit.readings, out);
  const auto count = [&](Weight weight) {
    return std::ranges::count(visit.complaints, weight, &Complaint::weight);
  };
  fmt::print(out, "{} faults, {} debris, {} notes{}\n", count(Weight::kFault),
             count(Weight::kDebris), count(Weight::kNote),
             visit.blocks_read || visit.readings.empty() ? "" : "; blocks were not read");
}

Result<ExitCode> run_doctor(const DoctorArguments& arguments, Console& console) {
  DF_TRY(const Visit visit, visit_run(arguments, console));
  if (visit.error) {
    fmt::print(console.err, "deepfreeze doctor: {}\n", readable(visit.error->message()));
  }
  if (console.json) {
    print_visit_json(visit, console.out);
  } else {
    print_visit(visit, console.out);
  }
  if (visit.failed()) return kExitFailure;
  return visit.good() ? kExitGood : kExitFault;
}

}  // namespace

Command add_doctor(Program& program) {
  Verb verb =
      program.add_verb("doctor", "Report the defects of a run; repair or tidy it on request");
  const auto arguments = std::make_shared<DoctorArguments>();  // also held by the parser
  verb.value("RUN", arguments->run, "The run's directory").required();
  verb.values("TIER", arguments->tiers, "Directories of its farther tiers, nearest first");
  verb.flag("--verify", arguments->verify, "Read all data too, not only records and headers");
  verb.flag("--repair", arguments->repair,
            "Write a bad deepfreeze.json anew, and a bad manifest whose data is whole");
  verb.flag("--delete-debris", arguments->delete_debris,
            "Delete attempts that were aborted, half deleted, or left by a process that a newer\n"
            "claim fenced, and temporary files over an hour old");
  verb.footer(
      "Reads records and headers, and says how old the last full reading of each checkpoint is, "
      "by\n"
      "scrub or verify --deep. A fault that it found counts until the checkpoint is read again.\n"
      "Changes nothing without --repair or --delete-debris; never deletes a checkpoint, a\n"
      "foreign file, or an attempt that may be in flight. Exit 3 if a requested change was not\n"
      "made, else 1 while a fault is left.\n"
      "Of each TIER it says whether it can be used, how far it is behind, and what is wrong with\n"
      "its copies; --repair and --delete-debris are for RUN, and a TIER can be given as RUN.\n"
      "--json: {run, good, failed, findings: [{kind, weight: fault|debris|note, place, detail,\n"
      "  bytes, tensors, means, remedy}], blocks_read, checkpoints: [{directory, step,\n"
      "  written_micros, last_full_read_micros | null, last_full_read_good | null}], repaired: "
      "[{place, how}], not_repaired: [{place, why}],\n"
      "  deleted: [{place, bytes}], not_deleted: [{place, bytes, why}], tiers: [{path, newest_step "
      "| null, free_bytes | null,\n"
      "  behind: {checkpoints, bytes}, absent: {checkpoints, bytes}}], error?: {code, message}}");
  return {verb, [arguments](Console& console) { return run_doctor(*arguments, console); }};
}

}  // namespace deepfreeze

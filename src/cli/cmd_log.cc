// deepfreeze log RUN: a run's origin, its generations, and the steps that each holds.
#include <fmt/ostream.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <ostream>

#include "base/try.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/output.h"
#include "cli/run_ref.h"
#include "inspect/lineage.h"

namespace deepfreeze {
namespace {

constexpr std::size_t kIndentMax = 16;  // deeper branches are drawn at this depth

std::string origin_text(const GenerationEntry& entry) {
  if (!entry.claim_readable) return "origin unknown";
  if (!entry.resumed_from) return "from scratch";
  return fmt::format("from step {} of generation {}", entry.resumed_from->step,
                     entry.resumed_from->generation);
}

std::string steps_text(const GenerationEntry& entry) {
  std::vector<std::string> steps;
  for (const StepEntry& step : entry.steps) {
    steps.push_back(fmt::format("{}{}", step.point.step, step.abandoned ? " (abandoned)" : ""));
  }
  return steps.empty() ? "no steps" : fmt::format("steps {}", fmt::join(steps, ", "));
}

void print_generation(const GenerationEntry& entry, Console& console) {
  const std::size_t depth = std::min(entry.depth, kIndentMax);
  const std::string stem = depth == 0 ? "" : std::string((depth - 1) * 4, ' ') + "`-- ";
  fmt::print(console.out, "{}generation {}, {}: {}\n", stem, entry.generation, origin_text(entry),
             steps_text(entry));
}

void print_log(const OpenedRun& run, const std::vector<ParentEntry>& parents,
               const std::vector<GenerationEntry>& entries, Console& console) {
  fmt::print(console.out, "{}  run {}\n", readable(run.path), run.listing.run.run_id);
  for (const ParentEntry& parent : parents) {
    fmt::print(console.out, "branched from {} step {}  {}\n", readable(parent.point.run),
               parent.point.step,
               parent.cause.empty() ? "run " + parent.run_id : "(" + readable(parent.cause) + ")");
  }
  for (const GenerationEntry& entry : entries) print_generation(entry, console);
}

void write_step(JsonWriter& json, const StepEntry& step) {
  json.begin_object();
  write_point_members(json, step.point);
  json.members("abandoned", step.abandoned);
  json.end_object();
}

void write_generation(JsonWriter& json, const GenerationEntry& entry) {
  json.begin_object();
  json.members("generation", entry.generation, "claim_readable", entry.claim_readable);
  json.key("resumed_from");
  entry.resumed_from ? write_point(json, *entry.resumed_from) : json.value(nullptr);
  json.members("steps", json_array(entry.steps, write_step));
  json.end_object();
}

void write_parent(JsonWriter& json, const ParentEntry& parent) {
  json.begin_object();
  json.members("run", parent.point.run, "step", parent.point.step);
  if (!parent.run_id.empty()) json.members("id", parent.run_id);
  if (!parent.cause.empty()) json.members("cause", parent.cause);
  json.end_object();
}

Result<ExitCode> run_log(const std::string& text, Console& console) {
  DF_TRY(const OpenedRun run, open_whole_run(text));
  const std::vector<ParentEntry> parents = parents_of(run.listing);
  const std::vector<GenerationEntry> entries = generations_of(run.listing);
  if (!console.json) {
    print_log(run, parents, entries, console);
    return kExitGood;
  }
  JsonWriter document = json_document("log", run);
  document.members("parents", json_array(parents, write_parent), "generations",
                   json_array(entries, write_generation));
  print_json(console.out, std::move(document));
  return kExitGood;
}

}  // namespace

Command add_log(Program& program) {
  Verb verb = program.add_verb("log", "Show a run's lineage: parents, generations, their steps");
  const auto run = std::make_shared<std::string>();  // also held by the parser
  verb.value("RUN", *run, "The run's directory").required();
  verb.footer(
      "--json: {run, parents: [{run, step, id | cause}], generations: [{generation,\n"
      "  claim_readable, resumed_from | null, steps: [{generation, step, save, attempt,\n"
      "  abandoned}]}]}");
  return {verb, [run](Console& console) { return run_log(*run, console); }};
}

}  // namespace deepfreeze

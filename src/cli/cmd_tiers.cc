// deepfreeze tiers RUN TIER...: which checkpoint lies on which tier. With --plan: the cost of one.
#include <fmt/ostream.h>

#include <memory>
#include <ostream>

#include "base/try.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/output.h"
#include "cli/run_ref.h"
#include "cli/tier_listing.h"
#include "cli/tier_plan.h"
#include "manifest/history.h"
#include "tiering/flush_plan.h"
#include "tiering/merged_run.h"

namespace deepfreeze {
namespace {

struct TiersArguments {
  std::string run;
  std::vector<std::string> tiers;
  PlanArguments plan;
};

struct SeenTiers {
  std::vector<std::string> paths;
  std::vector<RunListing> listings;
};

// A tier without a run is one to which nothing was copied yet.
Result<SeenTiers> look(const TiersArguments& arguments) {
  DF_TRY(OpenedRun run, open_whole_run(arguments.run));
  SeenTiers seen;
  seen.paths.push_back(run.path);
  seen.listings.push_back(std::move(run.listing));
  for (const std::string& path : arguments.tiers) {
    DF_TRY(ListedTier tier, list_tier(path, seen.listings.front().run, seen.paths.front()));
    seen.paths.push_back(path);
    seen.listings.push_back(std::move(tier.listing));
  }
  return seen;
}

const char* state_on(const RunListing& listing, const AttemptName& name) {
  if (is_among(listing.half_deleted, name)) return "being deleted";
  for (const AttemptState& attempt : listing.attempts) {
    if (attempt.name != name) continue;
    if (attempt.committed()) return "committed";
    if (attempt.fault) return "damaged";
    return attempt.undecided() ? "begun" : "aborted";
  }
  return "-";
}

// Newest first; an attempt that is committed nowhere is no checkpoint.
std::vector<Manifest> all_checkpoints(const SeenTiers& seen) {
  return newest_first(merge(seen.listings));
}

void print_table(const SeenTiers& seen, std::ostream& out) {
  std::vector<Column> columns = {{"step", Column::Align::kRight}};
  for (const std::string& path : seen.paths) columns.push_back({path});
  Table table(std::move(columns));
  for (const Manifest& manifest : all_checkpoints(seen)) {
    std::vector<std::string> cells = {std::to_string(manifest.point.step)};
    for (const RunListing& listing : seen.listings) {
      cells.emplace_back(state_on(listing, name_of(manifest)));
    }
    table.add(std::move(cells));
  }
  table.print(out);
}

void print_document(const SeenTiers& seen, std::ostream& out) {
  JsonWriter document = json_document("tiers");
  document.members("run", seen.listings.front().run.run_id, "tiers", seen.paths, "checkpoints",
                   json_array(all_checkpoints(seen), [&](JsonWriter& json, const Manifest& one) {
                     std::vector<std::string> states;
                     for (const RunListing& listing : seen.listings) {
                       states.emplace_back(state_on(listing, name_of(one)));
                     }
                     json.object("step", one.point.step, "directory",
                                 attempt_dir_name(name_of(one)), "states", states);
                   }));
  print_json(out, std::move(document));
}

Result<ExitCode> run_tiers(const TiersArguments& arguments, Console& console) {
  if (arguments.plan.plan) {
    if (arguments.tiers.empty()) return plan_tier(arguments.run, arguments.plan, console);
    return fail(ErrorCode::kInvalidArgument, "--plan takes one RUN and no TIER");
  }
  if (arguments.tiers.empty()) {
    return fail(ErrorCode::kInvalidArgument, "name RUN, and at least one TIER");
  }
  DF_TRY(const SeenTiers seen, look(arguments));
  if (console.json) {
    print_document(seen, console.out);
  } else {
    print_table(seen, console.out);
  }
  return kExitGood;
}

}  // namespace

Command add_tiers(Program& program) {
  Verb verb =
      program.add_verb("tiers", "Show which checkpoint lies on which tier, or what one costs");
  const auto arguments = std::make_shared<TiersArguments>();  // also held by the parser
  verb.value("RUN", arguments->run, "The run's directory");
  verb.values("TIER", arguments->tiers, "Directories of its farther tiers");
  add_plan_options(verb, arguments->plan);
  verb.footer(
      "--json: {run, tiers: [path], checkpoints: [{step, directory, states: [text for each\n"
      "  tier]}]}; a state is committed, begun, damaged, aborted, being deleted or -\n"
      "--json --plan: {every, keep_last, keep_every, steps_per_hour, checkpoint_bytes, files,\n"
      "  prices: {gb_month, thousand_puts, thousand_gets, are_examples}, months: [{month,\n"
      "  checkpoints, kept, bytes, puts, gets, storage_cost, request_cost, cost}]}");
  return {verb, [arguments](Console& console) { return run_tiers(*arguments, console); }};
}

}  // namespace deepfreeze

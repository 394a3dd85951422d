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
#include "tiering/copy_file.h"
#include "tiering/flush_plan.h"
#include "tiering/merged_run.h"

namespace deepfreeze {
namespace {

struct TiersArguments {
  std::string run;
  std::vector<std::string> tiers;
  bool sizes = false;
  PlanArguments plan;
};

struct SeenTiers {
  std::vector<std::string> paths;
  std::vector<std::unique_ptr<Vfs>> places;  // null: nothing of the run is there
  std::vector<RunListing> listings;
};

// A tier without a run is one to which nothing was copied yet.
Result<SeenTiers> look(const TiersArguments& arguments) {
  DF_TRY(OpenedRun run, open_whole_run(arguments.run));
  SeenTiers seen;
  seen.paths.push_back(run.path);
  seen.places.push_back(std::move(run.vfs));
  seen.listings.push_back(std::move(run.listing));
  for (const std::string& path : arguments.tiers) {
    DF_TRY(ListedTier tier, list_tier(path, seen.listings.front().run, seen.paths.front()));
    seen.paths.push_back(path);
    seen.places.push_back(std::move(tier.vfs));
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

// The bytes that the files of a checkpoint take on one tier; 0 if it is not committed there.
Result<std::uint64_t> bytes_on(const SeenTiers& seen, std::size_t tier, const Manifest& manifest) {
  if (!is_committed_in(seen.listings[tier], name_of(manifest))) return 0;
  std::uint64_t bytes = 0;
  for (const ManifestFile& file : manifest.files) {
    DF_TRY(const auto stored,
           seen.places[tier]->open_read(path_in_run(manifest, file.name), Access::kBuffered));
    DF_TRY(const std::uint64_t more, stored->size());
    bytes += more;
  }
  return bytes;
}

// A row for each checkpoint, with a number for each tier; empty if nobody asks.
using StoredBytes = std::vector<std::vector<std::uint64_t>>;
Result<StoredBytes> bytes_on_all(const TiersArguments& arguments, const SeenTiers& seen) {
  StoredBytes all;
  if (!arguments.sizes) return all;
  for (const Manifest& manifest : all_checkpoints(seen)) {
    std::vector<std::uint64_t>& bytes = all.emplace_back();
    for (std::size_t tier = 0; tier < seen.paths.size(); ++tier) {
      DF_TRY(const std::uint64_t one, bytes_on(seen, tier, manifest));
      bytes.push_back(one);
    }
  }
  return all;
}

// "committed", or with sizes "committed, 80.2 MB, 1.22 times smaller".
std::string cell_of(const SeenTiers& seen, const Manifest& manifest, std::size_t tier,
                    const std::vector<std::uint64_t>* bytes) {
  std::string cell = state_on(seen.listings[tier], name_of(manifest));
  if (bytes == nullptr || (*bytes)[tier] == 0) return cell;
  const std::uint64_t there = (*bytes)[tier];
  cell += ", " + human_bytes(there);
  const double ratio = static_cast<double>(stored_bytes(manifest)) / static_cast<double>(there);
  return ratio > 1 ? cell + fmt::format(", {:.2f} times smaller", ratio) : cell;
}

void print_table(const SeenTiers& seen, const StoredBytes& bytes, std::ostream& out) {
  std::vector<Column> columns = {{"step", Column::Align::kRight}};
  for (const std::string& path : seen.paths) columns.push_back({path});
  Table table(std::move(columns));
  const std::vector<Manifest> checkpoints = all_checkpoints(seen);
  for (std::size_t i = 0; i < checkpoints.size(); ++i) {
    std::vector<std::string> cells = {std::to_string(checkpoints[i].point.step)};
    for (std::size_t tier = 0; tier < seen.paths.size(); ++tier) {
      cells.push_back(cell_of(seen, checkpoints[i], tier, bytes.empty() ? nullptr : &bytes[i]));
    }
    table.add(std::move(cells));
  }
  table.print(out);
}

void print_document(const SeenTiers& seen, const StoredBytes& bytes, std::ostream& out) {
  JsonWriter document = json_document("tiers");
  std::size_t number = 0;
  document.members("run", seen.listings.front().run.run_id, "tiers", seen.paths, "checkpoints",
                   json_array(all_checkpoints(seen), [&](JsonWriter& json, const Manifest& one) {
                     std::vector<std::string> states;
                     for (const RunListing& listing : seen.listings) {
                       states.emplace_back(state_on(listing, name_of(one)));
                     }
                     json.begin_object();
                     json.members("step", one.point.step, "directory",
                                  attempt_dir_name(name_of(one)), "states", states);
                     if (!bytes.empty()) json.members("bytes", bytes[number++]);
                     json.end_object();
                   }));
  print_json(out, std::move(document));
}

Result<ExitCode> run_tiers(const TiersArguments& arguments, Console& console) {
  if (arguments.plan.plan) {
    if (arguments.tiers.empty()) return plan_tier(arguments.run, arguments.plan, console);
    return fail(ErrorCode::kInvalidArgument, "--plan takes one RUN and no TIER");
  }
  if (arguments.tiers.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                "name RUN, and at least one TIER; `deepfreeze ls` shows a single place");
  }
  DF_TRY(const SeenTiers seen, look(arguments));
  DF_TRY(const StoredBytes bytes, bytes_on_all(arguments, seen));
  if (console.json) {
    print_document(seen, bytes, console.out);
  } else {
    print_table(seen, bytes, console.out);
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
  verb.flag("--sizes", arguments->sizes, "Also the bytes that each checkpoint takes on each tier");
  add_plan_options(verb, arguments->plan);
  verb.footer(
      "--json: {run, tiers: [path], checkpoints: [{step, directory, states: [text for each\n"
      "  tier]}]}; a state is committed, begun, damaged, aborted, being deleted or -\n"
      "--json --sizes: the checkpoints also have bytes: [number for each tier], 0 if it is not "
      "there\n"
      "--json --plan: {every, keep_last, keep_every, steps_per_hour, checkpoint_bytes, files,\n"
      "  prices: {gb_month, thousand_puts, thousand_gets, are_examples}, months: [{month,\n"
      "  checkpoints, kept, bytes, puts, gets, storage_cost, request_cost, cost}]}");
  return {verb, [arguments](Console& console) { return run_tiers(*arguments, console); }};
}

}  // namespace deepfreeze

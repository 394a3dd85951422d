// deepfreeze ls RUN: the attempts of a run, newest first. tree_listing has the runs of a tree.
#include <fmt/ostream.h>

#include <algorithm>
#include <memory>
#include <ostream>

#include "base/clock.h"
#include "base/hex.h"
#include "base/try.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/metric_columns.h"
#include "cli/output.h"
#include "cli/run_ref.h"
#include "cli/selection.h"
#include "cli/tree_listing.h"
#include "manifest/given_tags.h"
#include "manifest/history.h"
#include "manifest/in_doubt.h"
#include "manifest/node_files.h"
#include "manifest/ranking.h"
#include "object/object_place.h"

namespace deepfreeze {
namespace {

constexpr std::size_t kTagWidthMax = 24;  // of a value, among the remarks

// Attempts with a readable manifest come first, by their place in history, then the others by step.
bool listed_before(const AttemptState& a, const AttemptState& b) {
  if (a.manifest && b.manifest) return older(b.manifest->point, a.manifest->point);
  if (a.manifest || b.manifest) return a.manifest.has_value();
  return a.name.step > b.name.step;
}

std::string state_of(const AttemptState& attempt) {
  if (attempt.committed()) return "committed";
  if (attempt.manifest) return "aborted";
  return attempt.fault ? "fault" : "undecided";
}

// Empty if no claim records a metric for the best, or no checkpoint has it.
std::optional<Point> best_point(const RunListing& listing, const std::vector<Manifest>& committed) {
  const auto rule = recorded_keep(listing).value_or(Keep{}).best;
  const auto place = place_of_best(measured(committed, listing), {}, rule);
  if (!place) return std::nullopt;
  return committed[*place].point;
}

// The remarks on an attempt, beside its numbers.
struct Flags {
  std::string place;  // in the run's history
  bool best = false;  // by the run's own rule
  // Set if the checkpoint has files on other nodes, too.
  std::optional<NodeFiles> node_files = {};
};

// The newest committed one is "newest"; other committed ones are plain unless abandoned.
std::string place_of(const RunListing& listing, const AttemptState& attempt, const Point* newest) {
  if (!attempt.committed()) return state_of(attempt);
  if (newest != nullptr && attempt.manifest->point == *newest) return "newest";
  return on_current_line(listing, attempt.manifest->point) ? "" : "abandoned";
}

// The remarks as text for people, the flag first.
std::string remark_on(const AttemptState& attempt, const Flags& flags) {
  std::string text = flags.place;
  const auto add = [&text](bool is_so, std::string_view remark) {
    if (is_so) text += fmt::format("{}{}", text.empty() ? "" : ", ", remark);
  };
  if (attempt.doubt) return describe(*attempt.doubt);
  if (!attempt.manifest) return text;
  add(flags.best, "best");
  if (const std::uint64_t shared = shared_bytes(*attempt.manifest); shared > 0) {
    add(true, fmt::format("shares {}", human_bytes(shared)));
  }
  add(attempt.manifest->non_finite.value_or(0) > 0, "not finite");
  add(!attempt.manifest->diverged.empty(), "ranks differ");
  if (flags.node_files) add(true, files_here(*flags.node_files, *attempt.manifest));
  if (!attempt.given) return text;
  add(attempt.given->fault.has_value(), "tags not known");
  for (const auto& [name, value] : attempt.given->tags) {
    add(true, fmt::format("{}={}", name, cut_to(kTagWidthMax, printable(value))));
  }
  return text;
}

void write_manifest_members(JsonWriter& json, const AttemptState& attempt, bool best) {
  const Manifest& manifest = *attempt.manifest;
  const auto write_divergence = [](JsonWriter& list, const Divergence& one) {
    list.object("tensor", one.key, "ranks", one.ranks);
  };
  json.members("generation", manifest.point.generation, "save", manifest.point.save_index, "bytes",
               stored_bytes(manifest), "shared_bytes", shared_bytes(manifest), "world_size",
               manifest.world_size, "time_micros", manifest.annotations.wall_micros, "best", best,
               "metrics", manifest.annotations.metrics, "tags", tags_of(attempt), "given_tags",
               attempt.given ? attempt.given->tags : Tags());
  if (manifest.non_finite) json.members("non_finite", *manifest.non_finite);
  if (manifest.diverged.empty()) return;
  json.members("diverged", json_array(manifest.diverged, write_divergence));
}

void write_attempt(JsonWriter& json, const AttemptState& attempt, const Flags& flags) {
  json.begin_object();
  json.members("step", attempt.name.step, "attempt", hex64(attempt.name.attempt_id), "directory",
               attempt_dir_name(attempt.name), "state", state_of(attempt), "flag", flags.place);
  if (attempt.fault) json.members("fault", attempt.fault->message());
  if (attempt.doubt) {
    const auto& node = attempt.doubt->node;
    json.members("in_doubt", describe(*attempt.doubt), "deciding_node",
                 node ? std::optional(hex64(*node)) : std::nullopt);
  }
  if (attempt.manifest) write_manifest_members(json, attempt, flags.best);
  if (attempt.given && attempt.given->fault) {
    json.members("tags_fault", attempt.given->fault->message());
  }
  if (flags.node_files) {
    json.members("files", attempt.manifest->files.size(), "files_here", flags.node_files->here);
  }
  json.end_object();
}

// Without metrics and flag.
std::vector<std::string> attempt_cells(const AttemptState& attempt) {
  const std::string step = std::to_string(attempt.name.step);
  if (!attempt.manifest) return {step, "", "", "", "", ""};
  const Manifest& manifest = *attempt.manifest;
  const std::int64_t time = manifest.annotations.wall_micros;
  return {step,
          std::to_string(manifest.point.generation),
          std::to_string(manifest.point.save_index),
          human_bytes(stored_bytes(manifest)),
          utc_time(time),
          human_age(time, wall_micros())};
}

std::vector<Metrics> metrics_of(const std::vector<AttemptState>& attempts) {
  std::vector<Metrics> rows;
  for (const AttemptState& attempt : attempts) {
    rows.push_back(attempt.manifest ? attempt.manifest->annotations.metrics : Metrics{});
  }
  return rows;
}

Table table_of(const std::vector<AttemptState>& attempts, const std::vector<std::string>& remarks,
               const std::vector<std::string>& metrics) {
  using enum Column::Align;
  std::vector<Column> columns{{"STEP", kRight},  {"GEN", kRight}, {"SAVE", kRight},
                              {"BYTES", kRight}, {"TIME", kLeft}, {"AGE", kRight}};
  for (const std::string& name : metrics) columns.push_back(metric_column(name));
  columns.push_back({"FLAG", kLeft});
  Table table(columns);
  const std::vector<Metrics> rows = metrics_of(attempts);
  for (std::size_t i = 0; i < attempts.size(); ++i) {
    std::vector<std::string> cells = attempt_cells(attempts[i]);
    for (const std::string& name : metrics) cells.push_back(metric_cell(rows[i], name));
    cells.push_back(remarks[i]);
    table.add(std::move(cells));
  }
  return table;
}

void print_attempts(Console& console, const std::vector<AttemptState>& attempts,
                    const std::vector<std::string>& remarks) {
  std::optional<std::size_t> room = console.columns;
  if (room) *room -= std::min(*room, table_of(attempts, remarks, {}).width());
  const MetricColumns metrics = fitting_metrics(metrics_of(attempts), room);
  table_of(attempts, remarks, metrics.names).print(console.out);
  if (metrics.left_out == 0) return;
  fmt::print(console.out, "{} of {} metrics are shown; --json has all\n", metrics.names.size(),
             metrics.names.size() + metrics.left_out);
}

// Empty if all its files are to be here, or if it was deleted meanwhile.
std::optional<NodeFiles> files_on_node(const OpenedRun& run, const AttemptState& attempt) {
  if (!attempt.committed() || !is_of_several_nodes(run.listing, *attempt.manifest))
    return std::nullopt;
  auto own = list_node_files(*run.vfs, *attempt.manifest);
  if (!own || own->elsewhere == 0) return std::nullopt;
  return std::move(*own);
}

void print_table(Console& console, const std::vector<AttemptState>& attempts,
                 const std::vector<Flags>& flags) {
  std::vector<std::string> remarks;
  for (std::size_t i = 0; i < attempts.size(); ++i) {
    remarks.push_back(remark_on(attempts[i], flags[i]));
  }
  if (attempts.empty()) {
    fmt::print(console.out, "no checkpoints\n");
  } else {
    print_attempts(console, attempts, remarks);
  }
  for (const AttemptState& attempt : attempts) {
    if (!attempt.fault) continue;
    fmt::print(console.out, "{}: {}\n", attempt_dir_name(attempt.name),
               readable(attempt.fault->message()));
  }
}

struct LsArguments {
  std::string place;
  SelectionArguments selection;
  bool no_index = false;
};

// An attempt and the facts that a condition needs beside it.
struct Listed {
  AttemptState attempt;
  Tags tags;
  std::size_t steps = 0;
};

Subject subject_of(const Listed& one) {
  static const Metrics no_metrics;
  const bool has = one.attempt.committed();
  return {.step = one.attempt.name.step,
          .steps = one.steps,
          .bytes = has ? stored_bytes(*one.attempt.manifest) : 0,
          .metrics = has ? &one.attempt.manifest->annotations.metrics : &no_metrics,
          .tags = &one.tags};
}

// Only checkpoints fulfil a condition.
std::vector<AttemptState> chosen_attempts(const RunListing& listing, const Selection& selection) {
  const auto steps =
      static_cast<std::size_t>(std::ranges::count_if(listing.attempts, &AttemptState::committed));
  std::vector<Listed> rows;
  for (const AttemptState& attempt : listing.attempts) {
    Listed row{.attempt = attempt, .tags = tags_of(attempt), .steps = steps};
    if (selection.where && !(attempt.committed() && selection.takes(subject_of(row)))) continue;
    rows.push_back(std::move(row));
  }
  std::ranges::sort(rows, listed_before, &Listed::attempt);
  sort_rows(rows, selection, subject_of);
  std::vector<AttemptState> attempts;
  for (Listed& row : rows) attempts.push_back(std::move(row.attempt));
  return attempts;
}

Result<ExitCode> list_run(const OpenedRun& run, const Selection& selection, Console& console) {
  const std::vector<AttemptState> attempts = chosen_attempts(run.listing, selection);
  const std::vector<Manifest> committed = newest_first(run.listing);
  const Point* newest = committed.empty() ? nullptr : &committed.front().point;
  const std::optional<Point> best = best_point(run.listing, committed);
  std::vector<Flags> flags;
  for (const AttemptState& attempt : attempts) {
    const bool is_best = best && attempt.committed() && attempt.manifest->point == *best;
    flags.push_back({.place = place_of(run.listing, attempt, newest),
                     .best = is_best,
                     .node_files = files_on_node(run, attempt)});
  }
  if (!console.json) {
    print_table(console, attempts, flags);
    return kExitGood;
  }
  JsonWriter document = json_document("ls", run);
  document.key("checkpoints");
  document.begin_array();
  for (std::size_t i = 0; i < attempts.size(); ++i) write_attempt(document, attempts[i], flags[i]);
  document.end_array();
  print_json(console.out, std::move(document));
  return kExitGood;
}

// `not_a_run` is the answer if the place holds no runs either.
Result<ExitCode> list_runs_below(const LsArguments& arguments, const Selection& selection,
                                 const Error& not_a_run, Console& console) {
  const bool may_hold_runs =
      not_a_run.code() == ErrorCode::kNotFound && !is_object_url(arguments.place);
  if (!may_hold_runs) return std::unexpected(not_a_run);
  const auto rows =
      read_catalogue(arguments.place, arguments.no_index ? UseIndex::kNo : UseIndex::kYes);
  if (!rows && rows.error().code() == ErrorCode::kInvalidArgument) {
    return std::unexpected(rows.error());
  }
  if (!rows || rows->empty()) return std::unexpected(not_a_run);
  list_tree(arguments.place, *rows, selection, console);
  return kExitGood;
}

Result<ExitCode> run_ls(const LsArguments& arguments, Console& console) {
  DF_TRY(const Selection selection, selection_of(arguments.selection));
  DF_TRY(const std::string place, whole_run_path(arguments.place));
  const auto run = open_run(place);
  if (run) return list_run(*run, selection, console);
  return list_runs_below(arguments, selection, run.error(), console);
}

}  // namespace

Command add_ls(Program& program) {
  Verb verb =
      program.add_verb("ls", "List a run's checkpoints, newest first, or a directory's runs");
  const auto arguments = std::make_shared<LsArguments>();  // also held by the parser
  verb.value("RUN", arguments->place, "The run's directory, or one with runs below").required();
  add_selection(verb, arguments->selection);
  verb.flag("--no-index", arguments->no_index,
            "Of a directory with runs: read all records, and leave no index in the runs");
  verb.footer(
      "A condition is comparisons of step, steps (of the run), bytes, tag.NAME or a metric's name\n"
      "(or metric.NAME) with < <= > >= = !=, joined by 'and'. Odd names and values go in quotes. "
      "bytes\n"
      "are those of the listed row. A checkpoint without the metric or tag does not fulfil it.\n"
      "Of a tag, = and != compare the text, and < <= > >= compare numbers.\n"
      "Of each run, the table shows the best checkpoint, by the rule of its keep, or the newest, "
      "of\n"
      "those that fulfil the condition.\n"
      "--json: {run: {path, id}, checkpoints: [{step, attempt, directory, state, flag, fault?,\n"
      "  generation, save, bytes, shared_bytes, world_size, time_micros, best, metrics, tags,\n"
      "  given_tags, tags_fault?, non_finite?, diverged?: [{tensor, ranks}], in_doubt?,\n"
      "  deciding_node?: digits | null, files?, files_here?}]}: the last two if other files are "
      "on\n"
      "  other nodes. Of a directory with runs: {tree, runs: [{run, error?: {code, message}, id,\n"
      "  parent: {run, step} | null, steps, matching, newest, best, shown, bytes, shared_bytes,\n"
      "  active, claimed_micros, faults}]}; newest, best and shown are null or {step, "
      "time_micros,\n"
      "  bytes, shared_bytes, abandoned, metrics, tags}");
  return {verb, [arguments](Console& console) { return run_ls(*arguments, console); }};
}

}  // namespace deepfreeze

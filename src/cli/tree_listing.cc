#include "cli/tree_listing.h"

#include <fmt/ostream.h>

#include <algorithm>
#include <ostream>
#include <utility>

#include "base/clock.h"
#include "cli/metric_columns.h"
#include "cli/output.h"
#include "storage/posix_vfs.h"

namespace deepfreeze {
namespace {

namespace fs = std::filesystem;

// A run that is listed. Borrows its catalogue row.
struct Line {
  std::string name;                       // the path below the tree
  const CataloguedRun* run = nullptr;     // null if it can't be read
  const Error* error = nullptr;           // then
  const CataloguedStep* shown = nullptr;  // null if the run has none
  std::size_t matching = 0;               // checkpoints for which the condition holds
  std::uint64_t bytes = 0;
};

Subject subject_of(const CataloguedStep& step, const CataloguedRun& run, std::uint64_t bytes) {
  return {.step = step.step,
          .steps = run.steps.size(),
          .bytes = bytes,
          .metrics = &step.metrics,
          .tags = &step.tags};
}

Subject subject_of(const Line& line) {
  static const CataloguedStep nothing;
  static const CataloguedRun no_run;
  return subject_of(line.shown != nullptr ? *line.shown : nothing,
                    line.run != nullptr ? *line.run : no_run, line.bytes);
}

// The best of the checkpoints that match is shown, or else the newest.
void choose_shown(Line& line, const Selection& selection) {
  const CataloguedRun& run = *line.run;
  std::vector<bool> matches;
  for (const CataloguedStep& step : run.steps) {
    matches.push_back(selection.takes(subject_of(step, run, line.bytes)));
    if (!matches.back()) continue;
    ++line.matching;
    if (line.shown == nullptr) line.shown = &step;
  }
  if (run.best && matches[*run.best]) line.shown = &run.steps[*run.best];
}

std::string name_below(const fs::path& path, const std::string& tree) {
  const std::string name = path.lexically_relative(tree).string();
  return name.empty() ? path.string() : name;
}

// A run that can't be read is listed in any case: nobody knows whether it matches.
std::vector<Line> lines_of(const std::vector<CatalogueRow>& rows, const std::string& tree,
                           const Selection& selection) {
  std::vector<Line> lines;
  for (const CatalogueRow& row : rows) {
    Line line{.name = name_below(row.path, tree)};
    if (row.run) {
      line.run = &*row.run;
      line.bytes = bytes_of(*row.run);
      choose_shown(line, selection);
      if (selection.where && line.matching == 0) continue;
    } else {
      line.error = &row.run.error();
    }
    lines.push_back(std::move(line));
  }
  sort_rows(lines, selection, [](const Line& line) { return subject_of(line); });
  return lines;
}

void write_step(JsonWriter& json, const CataloguedStep* step) {
  if (step == nullptr) return json.value(nullptr);
  json.object("step", step->step, "time_micros", step->wall_micros, "bytes", step->bytes,
              "shared_bytes", step->shared_bytes, "abandoned", step->abandoned, "metrics",
              step->metrics, "tags", step->tags);
}

const CataloguedStep* newest_of(const CataloguedRun& run) {
  return run.steps.empty() ? nullptr : &run.steps.front();
}

const CataloguedStep* best_of(const CataloguedRun& run) {
  return run.best ? &run.steps[*run.best] : nullptr;
}

void write_line(JsonWriter& json, const Line& line, std::int64_t now) {
  json.begin_object();
  json.members("run", line.name);
  if (line.error != nullptr) {
    json.key("error");
    write_error(json, *line.error);
    return json.end_object();
  }
  const CataloguedRun& run = *line.run;
  json.members("id", run.run_id);
  json.key("parent");
  run.parent ? json.object("run", run.parent->run, "step", run.parent->step) : json.value(nullptr);
  json.members("steps", run.steps.size(), "matching", line.matching);
  json.key("newest");
  write_step(json, newest_of(run));
  json.key("best");
  write_step(json, best_of(run));
  json.key("shown");
  write_step(json, line.shown);
  json.members("bytes", line.bytes, "shared_bytes", shared_bytes_of(run), "active",
               is_active(run, now), "claimed_micros", run.claimed_micros, "faults", run.faults);
  json.end_object();
}

// The path below the tree, if the parent is in it.
std::string parent_text(const CataloguedRun& run, const std::string& absolute_tree) {
  if (!run.parent) return "";
  const std::string below = fs::path(run.parent->run).lexically_relative(absolute_tree).string();
  const bool is_below = !below.empty() && !below.starts_with("..");
  return fmt::format("{}@{}", is_below ? below : run.parent->run, run.parent->step);
}

std::string state_text(const Line& line, std::int64_t now) {
  if (line.run == nullptr) return "can't be read";
  std::string text = is_active(*line.run, now) ? "active" : "";
  if (const std::size_t faults = line.run->faults; faults > 0) {
    text += fmt::format("{}{} fault{}", text.empty() ? "" : ", ", faults, faults == 1 ? "" : "s");
  }
  return text;
}

// The cells before the metrics.
std::vector<std::string> first_cells(const Line& line, const std::string& absolute_tree) {
  if (line.run == nullptr) return {line.name, "", "", "", ""};
  return {line.name, line.run->run_id, parent_text(*line.run, absolute_tree),
          std::to_string(line.run->steps.size()),
          line.shown == nullptr ? "" : std::to_string(line.shown->step)};
}

std::vector<std::string> last_cells(const Line& line, std::int64_t now) {
  if (line.run == nullptr) return {"", "", "", state_text(line, now)};
  const std::uint64_t shared = shared_bytes_of(*line.run);
  const CataloguedStep* newest = newest_of(*line.run);
  return {human_bytes(line.bytes), shared == 0 ? "" : human_bytes(shared),
          newest == nullptr ? "" : human_age(newest->wall_micros, now), state_text(line, now)};
}

std::vector<Metrics> metrics_of(const std::vector<Line>& lines) {
  std::vector<Metrics> rows;
  for (const Line& line : lines) rows.push_back(line.shown ? line.shown->metrics : Metrics{});
  return rows;
}

Table table_of(const std::vector<Line>& lines, const std::string& absolute_tree,
               const std::vector<std::string>& metrics) {
  using enum Column::Align;
  std::vector<Column> columns{
      {"RUN", kLeft}, {"ID", kLeft}, {"PARENT", kLeft}, {"STEPS", kRight}, {"STEP", kRight}};
  for (const std::string& name : metrics) columns.push_back(metric_column(name));
  columns.insert(columns.end(),
                 {{"BYTES", kRight}, {"SHARED", kRight}, {"NEWEST", kRight}, {"STATE", kLeft}});
  Table table(columns);
  const std::int64_t now = wall_micros();
  const std::vector<Metrics> rows = metrics_of(lines);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    std::vector<std::string> cells = first_cells(lines[i], absolute_tree);
    for (const std::string& name : metrics) cells.push_back(metric_cell(rows[i], name));
    std::ranges::move(last_cells(lines[i], now), std::back_inserter(cells));
    table.add(std::move(cells));
  }
  return table;
}

void print_lines(Console& console, const std::vector<Line>& lines, const std::string& tree) {
  if (lines.empty()) return fmt::print(console.out, "no run matches\n");
  const auto place = absolute_path(tree);
  const std::string absolute = place ? place->lexically_normal().string() : tree;
  std::optional<std::size_t> room = console.columns;
  if (room) *room -= std::min(*room, table_of(lines, absolute, {}).width());
  const MetricColumns metrics = fitting_metrics(metrics_of(lines), room);
  table_of(lines, absolute, metrics.names).print(console.out);
  if (metrics.left_out > 0) {
    fmt::print(console.out, "{} of {} metrics are shown; --json has all\n", metrics.names.size(),
               metrics.names.size() + metrics.left_out);
  }
  for (const Line& line : lines) {
    if (line.error == nullptr) continue;
    fmt::print(console.out, "{}: {}\n", readable(line.name), readable(line.error->message()));
  }
}

}  // namespace

void list_tree(const std::string& tree, const std::vector<CatalogueRow>& rows,
               const Selection& selection, Console& console) {
  const std::vector<Line> lines = lines_of(rows, tree, selection);
  if (!console.json) return print_lines(console, lines, tree);
  JsonWriter document = json_document("ls");
  document.members("tree", tree);
  const std::int64_t now = wall_micros();
  document.key("runs");
  document.begin_array();
  for (const Line& line : lines) write_line(document, line, now);
  document.end_array();
  print_json(console.out, std::move(document));
}

}  // namespace deepfreeze

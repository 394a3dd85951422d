// deepfreeze show RUN[@STEP] [KEY]: the contents of a checkpoint; one tensor's or object's value.
#include <fmt/ostream.h>

#include <algorithm>
#include <array>
#include <memory>
#include <ostream>

#include "base/try.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/run_ref.h"
#include "format/state_tree.h"
#include "inspect/read_tensor.h"
#include "inspect/reading.h"
#include "inspect/tensor_stats.h"
#include "manifest/given_tags.h"

namespace deepfreeze {
namespace {

constexpr std::size_t kHistogramWidth = 40;  // of the fullest histogram bin

struct ShowArguments {
  std::string run;
  std::string key;
};

Result<std::vector<TreeLeaf>> leaves_of(const Snapshot& snapshot) {
  if (snapshot.tree().empty()) return std::vector<TreeLeaf>{};
  return walk_tree(snapshot.tree());
}

// The leaf's text is then the key of an entry of the data section.
bool refers_to_data(const TreeLeaf& leaf) {
  return leaf.kind == "tensor" || leaf.kind == "array" || leaf.kind == "blob";
}

void write_leaf(JsonWriter& json, const TreeLeaf& leaf) {
  json.object("path", leaf.path, "kind", leaf.kind, "value", leaf.text);
}

Tags tags_in(const OpenedCheckpoint& checkpoint) {
  for (const AttemptState& attempt : checkpoint.run.listing.attempts) {
    if (!attempt.committed()) continue;
    if (attempt.manifest->point == checkpoint.snapshot->manifest().point) return tags_of(attempt);
  }
  return {};
}

JsonWriter show_document(const OpenedCheckpoint& checkpoint) {
  JsonWriter document = json_document("show", checkpoint.run);
  document.key("checkpoint");
  write_point(document, checkpoint.snapshot->manifest().point);
  return document;
}

void print_heading(const OpenedCheckpoint& checkpoint, Console& console) {
  const Snapshot& snapshot = *checkpoint.snapshot;
  const Manifest& manifest = snapshot.manifest();
  const std::uint32_t ranks = manifest.world_size;
  fmt::print(console.out, "{} step {}, generation {}, save {}, {}: {} tensors, {}, {} rank{}\n",
             readable(checkpoint.run.path), manifest.point.step, manifest.point.generation,
             manifest.point.save_index, utc_time(manifest.annotations.wall_micros),
             snapshot.tensors().size(), human_bytes(snapshot.bytes()), ranks,
             ranks == 1 ? "" : "s");
  for (const auto& [name, value] : tags_in(checkpoint)) {
    fmt::print(console.out, "tag {} = {}\n", printable(name), printable(value));
  }
}

std::vector<std::string> tensor_cells(const TensorSpec& spec) {
  const auto bytes = spec_bytes(spec);
  return {spec.key, dtype_text(spec), shape_text(spec.shape), bytes ? human_bytes(*bytes) : ""};
}

std::vector<std::string> range_cells(const std::optional<ValueRange>& range) {
  if (!range) return {"", "", ""};
  const bool any = range->finite > 0;
  return {any ? number_text(range->min) : "", any ? number_text(range->max) : "",
          std::to_string(range->non_finite)};
}

// Prints the columns of the ranges if the checkpoint has any.
void print_tensors(const Snapshot& snapshot, Console& console) {
  using enum Column::Align;
  std::vector<Column> columns = {
      {"TENSOR", kLeft}, {"DTYPE", kLeft}, {"SHAPE", kLeft}, {"BYTES", kRight}};
  const auto ranges = snapshot.ranges();
  const bool with_ranges = std::ranges::any_of(ranges, &std::optional<ValueRange>::has_value);
  if (with_ranges) {
    columns.insert(columns.end(), {{"MIN", kRight}, {"MAX", kRight}, {"NAN OR INF", kRight}});
  }
  Table table(columns);
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    std::vector<std::string> cells = tensor_cells(snapshot.tensors()[i]);
    if (with_ranges) std::ranges::move(range_cells(ranges[i]), std::back_inserter(cells));
    table.add(std::move(cells));
  }
  if (table.empty()) return;
  fmt::print(console.out, "\n");
  table.print(console.out);
}

// Tensors that the tree refers to are listed as such already.
void print_objects(const std::vector<TreeLeaf>& leaves, Console& console) {
  using enum Column::Align;
  Table table({{"OBJECT", kLeft}, {"KIND", kLeft}, {"VALUE", kLeft}});
  for (const TreeLeaf& leaf : leaves) {
    if (leaf.kind != "tensor") table.add({leaf.path, leaf.kind, leaf.text});
  }
  if (table.empty()) return;
  fmt::print(console.out, "\n");
  table.print(console.out);
}

void write_tensor(JsonWriter& json, const TensorSpec& spec,
                  const std::optional<ValueRange>& range) {
  json.begin_object();
  write_spec_members(json, spec);
  if (range && range->finite > 0) json.members("min", range->min, "max", range->max);
  if (range) json.members("non_finite", range->non_finite);
  json.end_object();
}

void print_all_json(const OpenedCheckpoint& checkpoint, const std::vector<TreeLeaf>& leaves,
                    Console& console) {
  JsonWriter document = show_document(checkpoint);
  document.members("tags", tags_in(checkpoint));
  const auto ranges = checkpoint.snapshot->ranges();
  document.key("tensors");
  document.begin_array();
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    write_tensor(document, checkpoint.snapshot->tensors()[i], ranges[i]);
  }
  document.end_array();
  document.key("objects");
  document.begin_array();
  for (const TreeLeaf& leaf : leaves) {
    if (leaf.kind != "tensor") write_leaf(document, leaf);
  }
  document.end_array();
  print_json(console.out, std::move(document));
}

Result<ExitCode> show_all(const OpenedCheckpoint& checkpoint, Console& console) {
  const Snapshot& snapshot = *checkpoint.snapshot;
  DF_TRY(const std::vector<TreeLeaf> leaves, leaves_of(snapshot));
  if (!console.json) {
    print_heading(checkpoint, console);
    print_tensors(snapshot, console);
    print_objects(leaves, console);
    return kExitGood;
  }
  print_all_json(checkpoint, leaves, console);
  return kExitGood;
}

void write_stats(JsonWriter& json, const TensorStats& stats) {
  json.object("count", stats.count, "min", stats.min, "max", stats.max, "mean", stats.mean, "std",
              stats.std_dev, "norm", stats.norm, "zero", stats.zero_count, "nan", stats.nan_count,
              "inf", stats.inf_count, "histogram", stats.histogram);
}

// A bar in eighths of a character.
std::string bar(std::uint64_t count, std::uint64_t largest) {
  constexpr std::array<std::string_view, 8> kEighths{"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const double part = static_cast<double>(count) / static_cast<double>(largest);
  auto eighths = static_cast<std::size_t>(part * static_cast<double>(kHistogramWidth * 8) + 0.5);
  if (count > 0) eighths = std::max<std::size_t>(eighths, 1);
  std::string text;
  for (std::size_t i = 0; i < eighths / 8; ++i) text += "█";
  return text.append(kEighths[eighths % 8]);
}

void print_histogram(const TensorStats& stats, Console& console) {
  if (stats.histogram.empty()) return;
  using enum Column::Align;
  Table table({{"FROM", kRight}, {"COUNT", kRight}, {"", kLeft}});
  const std::uint64_t largest = std::ranges::max(stats.histogram);
  const double width = (stats.max / kHistogramBins) - (stats.min / kHistogramBins);
  for (std::size_t i = 0; i < stats.histogram.size(); ++i) {
    const std::uint64_t count = stats.histogram[i];
    table.add({number_text(stats.min + width * static_cast<double>(i)), std::to_string(count),
               bar(count, largest)});
    if (width == 0) break;  // all elements are equal: one bin tells everything
  }
  fmt::print(console.out, "\n");
  table.print(console.out);
}

void print_stats(const TensorSpec& spec, const TensorStats& stats, Console& console) {
  fmt::print(console.out, "{}  {}  {}  {} elements{}\n", readable(spec.key),
             readable(dtype_text(spec)), shape_text(spec.shape), stats.count,
             is_complex(spec) ? ", by magnitude" : "");
  using enum Column::Align;
  Table table({{"MIN", kRight},
               {"MAX", kRight},
               {"MEAN", kRight},
               {"STD", kRight},
               {"NORM", kRight},
               {"ZERO", kRight},
               {"NAN", kRight},
               {"INF", kRight}});
  table.add({number_text(stats.min), number_text(stats.max), number_text(stats.mean),
             number_text(stats.std_dev), number_text(stats.norm), std::to_string(stats.zero_count),
             std::to_string(stats.nan_count), std::to_string(stats.inf_count)});
  table.print(console.out);
  print_histogram(stats, console);
}

Result<ExitCode> show_tensor(const OpenedCheckpoint& checkpoint, const TensorSpec& spec,
                             Console& console) {
  DF_TRY(const std::uint64_t bytes, spec_bytes(spec));
  Progress progress(console, "read " + cut_to(40, printable(spec.key)), bytes);
  const ReadSettings settings{.thread_count = kReadThreads,
                              .on_progress = [&](std::uint64_t done) { progress.update(done); }};
  DF_TRY(const auto loaded, LoadedTensor::read(*checkpoint.snapshot, spec, settings));
  const TensorStats stats = tensor_stats(spec, loaded.bytes());
  if (!console.json) {
    print_stats(spec, stats, console);
    return kExitGood;
  }
  JsonWriter document = show_document(checkpoint);
  document.key("tensor");
  write_tensor(document, spec, std::nullopt);
  document.key("statistics");
  write_stats(document, stats);
  print_json(console.out, std::move(document));
  return kExitGood;
}

// An object, or the tensor that the tree holds at this path.
Result<ExitCode> show_at_path(const OpenedCheckpoint& checkpoint, const std::string& path,
                              Console& console) {
  DF_TRY(const std::vector<TreeLeaf> leaves, leaves_of(*checkpoint.snapshot));
  const auto leaf = std::ranges::find(leaves, path, &TreeLeaf::path);
  if (leaf == leaves.end()) {
    return fail(ErrorCode::kNotFound,
                fmt::format("{} step {} holds no tensor or object {}", checkpoint.run.path,
                            checkpoint.snapshot->manifest().point.step, path));
  }
  if (refers_to_data(*leaf)) {
    const TensorSpec* spec = checkpoint.snapshot->find(leaf->text);
    if (spec != nullptr) return show_tensor(checkpoint, *spec, console);
  }
  if (!console.json) {
    fmt::print(console.out, "{}  {}  {}\n", readable(leaf->path), readable(leaf->kind),
               printable(leaf->text));
    return kExitGood;
  }
  JsonWriter document = show_document(checkpoint);
  document.key("object");
  write_leaf(document, *leaf);
  print_json(console.out, std::move(document));
  return kExitGood;
}

Result<ExitCode> run_show(const ShowArguments& arguments, Console& console) {
  DF_TRY(const OpenedCheckpoint checkpoint, open_checkpoint(arguments.run));
  if (arguments.key.empty()) return show_all(checkpoint, console);
  const TensorSpec* spec = checkpoint.snapshot->find(arguments.key);
  if (spec != nullptr) return show_tensor(checkpoint, *spec, console);
  return show_at_path(checkpoint, arguments.key, console);
}

}  // namespace

Command add_show(Program& program) {
  Verb verb = program.add_verb("show", "Show a checkpoint's contents, or one tensor's statistics");
  const auto arguments = std::make_shared<ShowArguments>();  // also held by the parser
  verb.value("RUN", arguments->run, "RUN, RUN@STEP, RUN@latest or RUN@best").required();
  verb.value("KEY", arguments->key, "A tensor's key, or the path of an object");
  verb.footer(
      "--json: {run, checkpoint: {generation, step, save, attempt}, tags, tensors: [{key, dtype, "
      "shape,\n"
      "  logical_dtype?, bytes, min?, max?, non_finite?}], objects: [{path, kind, value}]}; with a "
      "KEY: {run, checkpoint,\n"
      "  tensor, statistics: {count, min, max, mean, std, norm, zero, nan, inf, histogram}} or\n"
      "  {run, checkpoint, object}. The histogram has equal bins from min to max.");
  return {verb, [arguments](Console& console) { return run_show(*arguments, console); }};
}

}  // namespace deepfreeze

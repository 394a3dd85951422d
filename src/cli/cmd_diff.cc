// deepfreeze diff A B: the differences between two checkpoints, of one run or of two.
#include <fmt/ostream.h>

#include <algorithm>
#include <memory>
#include <ostream>

#include "base/try.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/run_ref.h"
#include "inspect/compare.h"

namespace deepfreeze {
namespace {

struct DiffArguments {
  std::string a;
  std::string b;
  bool all = false;
};

void print_tensors(const std::vector<TensorDiff>& entries, bool all, Console& console) {
  using enum Column::Align;
  Table table({{"TENSOR", kLeft},
               {"", kLeft},
               {"MAX |A-B|", kRight},
               {"L2 REL", kRight},
               {"DIFFERING", kRight},
               {"NAN", kRight}});
  for (const TensorDiff& entry : entries) {
    if (entry.equal() && !all) continue;
    if (!entry.numbers) {
      table.add({entry.key, entry.what});
      continue;
    }
    const TensorDifference& numbers = *entry.numbers;
    table.add({entry.key, entry.what, number_text(numbers.max_abs),
               number_text(numbers.l2_relative),
               fmt::format("{} of {}", numbers.differing, numbers.count),
               std::to_string(numbers.incomparable)});
  }
  if (!table.empty()) table.print(console.out);
}

void print_objects(const std::vector<ObjectDiff>& objects, Console& console) {
  using enum Column::Align;
  Table table({{"OBJECT", kLeft}, {"A", kLeft}, {"B", kLeft}});
  for (const ObjectDiff& object : objects) table.add({object.path, object.a, object.b});
  if (!table.empty()) table.print(console.out);
}

void write_tensor(JsonWriter& json, const TensorDiff& entry) {
  json.begin_object();
  json.members("key", entry.key, "result", entry.what);
  if (entry.numbers) {
    const TensorDifference& numbers = *entry.numbers;
    json.members("count", numbers.count, "differing", numbers.differing, "incomparable",
                 numbers.incomparable, "max_abs", numbers.max_abs, "l2", numbers.l2, "l2_relative",
                 numbers.l2_relative);
  }
  json.end_object();
}

void write_object(JsonWriter& json, const ObjectDiff& object) {
  json.object("path", object.path, "a", object.a, "b", object.b);
}

void write_side(JsonWriter& json, const OpenedCheckpoint& checkpoint) {
  json.begin_object();
  json.members("path", checkpoint.run.path, "id", checkpoint.run.listing.run.run_id);
  write_point_members(json, checkpoint.snapshot->manifest().point);
  json.end_object();
}

void print_diff_json(const OpenedCheckpoint& a, const OpenedCheckpoint& b,
                     const std::vector<TensorDiff>& entries, const std::vector<ObjectDiff>& objects,
                     bool all, Console& console) {
  JsonWriter document = json_document("diff");
  document.key("a");
  write_side(document, a);
  document.key("b");
  write_side(document, b);
  document.members("equal_tensors", std::ranges::count_if(entries, &TensorDiff::equal));
  document.key("tensors");
  document.begin_array();
  for (const TensorDiff& entry : entries) {
    if (!entry.equal() || all) write_tensor(document, entry);
  }
  document.end_array();
  document.members("objects", json_array(objects, write_object));
  print_json(console.out, std::move(document));
}

Result<ExitCode> run_diff(const DiffArguments& arguments, Console& console) {
  DF_TRY(const OpenedCheckpoint a, open_checkpoint(arguments.a));
  DF_TRY(const OpenedCheckpoint b, open_checkpoint(arguments.b));
  DF_TRY(const auto entries, compare_tensors(*a.snapshot, *b.snapshot, bars_on(console)));
  DF_TRY(const auto objects, compare_objects(*a.snapshot, *b.snapshot));
  const auto differing = std::ranges::count_if(entries, std::not_fn(&TensorDiff::equal));
  if (console.json) {
    print_diff_json(a, b, entries, objects, arguments.all, console);
  } else {
    print_tensors(entries, arguments.all, console);
    print_objects(objects, console);
    fmt::print(console.out, "{} of {} tensors and {} objects differ\n", differing, entries.size(),
               objects.size());
  }
  return differing == 0 && objects.empty() ? kExitGood : kExitFault;
}

}  // namespace

Command add_diff(Program& program) {
  Verb verb = program.add_verb("diff", "Compare two checkpoints bit by bit; exit 1 if they differ");
  const auto arguments = std::make_shared<DiffArguments>();  // also held by the parser
  verb.value("A", arguments->a, "RUN, RUN@STEP, RUN@latest or RUN@best").required();
  verb.value("B", arguments->b, "The other one; of any run").required();
  verb.flag("--all", arguments->all, "List the equal tensors too");
  verb.footer(
      "--json: {a, b: {path, id, generation, step, save, attempt}, equal_tensors, tensors: [{key,\n"
      "  result, count?, differing?, incomparable?, max_abs?, l2?, l2_relative?}],\n"
      "  objects: [{path, a, b}]}. Incomparable: differing elements without a difference, as NaN.");
  return {verb, [arguments](Console& console) { return run_diff(*arguments, console); }};
}

}  // namespace deepfreeze

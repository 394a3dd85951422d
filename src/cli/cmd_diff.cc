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

nlohmann::ordered_json tensor_json(const TensorDiff& entry) {
  nlohmann::ordered_json json{{"key", entry.key}, {"result", entry.what}};
  if (!entry.numbers) return json;
  const TensorDifference& numbers = *entry.numbers;
  json["count"] = numbers.count;
  json["differing"] = numbers.differing;
  json["incomparable"] = numbers.incomparable;
  json["max_abs"] = number_json(numbers.max_abs);
  json["l2"] = number_json(numbers.l2);
  json["l2_relative"] = number_json(numbers.l2_relative);
  return json;
}

nlohmann::ordered_json side_json(const OpenedCheckpoint& checkpoint) {
  nlohmann::ordered_json json{{"path", checkpoint.run.path},
                              {"id", checkpoint.run.listing.run.run_id}};
  json.update(point_members(checkpoint.snapshot->manifest().point));
  return json;
}

void print_diff_json(const OpenedCheckpoint& a, const OpenedCheckpoint& b,
                     const std::vector<TensorDiff>& entries, const std::vector<ObjectDiff>& objects,
                     bool all, Console& console) {
  const auto equal_count = std::ranges::count_if(entries, &TensorDiff::equal);
  nlohmann::ordered_json document = json_document("diff");
  document["a"] = side_json(a);
  document["b"] = side_json(b);
  document["equal_tensors"] = equal_count;
  document["tensors"] = nlohmann::ordered_json::array();
  for (const TensorDiff& entry : entries) {
    if (!entry.equal() || all) document["tensors"].push_back(tensor_json(entry));
  }
  document["objects"] = nlohmann::ordered_json::array();
  for (const ObjectDiff& object : objects) {
    document["objects"].push_back({{"path", object.path}, {"a", object.a}, {"b", object.b}});
  }
  print_json(console.out, document);
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

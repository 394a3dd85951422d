// deepfreeze diff A B: what differs between two checkpoints, of one run or of two.
#include <fmt/ostream.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <ostream>

#include "base/try.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/read_tensor.h"
#include "cli/run_ref.h"
#include "cli/tensor_stats.h"
#include "format/state_tree.h"

namespace deepfreeze {
namespace {

struct DiffArguments {
  std::string a;
  std::string b;
  bool all = false;
};

// One line of the answer. `numbers` is set where both sides have elements to compare.
struct DiffEntry {
  std::string key;
  std::string what;  // "equal", "differs", "only in A", "only in B", "F32 [3] / F32 [4]"
  std::optional<TensorDifference> numbers;
  [[nodiscard]] bool equal() const { return what == "equal"; }
};

struct ObjectDiff {
  std::string path;
  std::string a;  // "kind value"; empty where it is not there
  std::string b;
};

std::string spec_text(const TensorSpec& spec) {
  return dtype_text(spec) + " " + shape_text(spec.shape);
}

bool same_elements(const TensorSpec& a, const TensorSpec& b) {
  return a.dtype == b.dtype && a.shape == b.shape && a.logical_dtype == b.logical_dtype;
}

Result<DiffEntry> compare_tensor(const Snapshot& a, const Snapshot& b, const TensorSpec& spec_a,
                                 const TensorSpec& spec_b) {
  DiffEntry entry{.key = spec_a.key, .what = "equal", .numbers = {}};
  if (!same_elements(spec_a, spec_b)) {
    entry.what = spec_text(spec_a) + " / " + spec_text(spec_b);
    return entry;
  }
  const ReadSettings settings{.thread_count = kReadThreads, .on_progress = {}};
  DF_TRY(const auto bytes_a, LoadedTensor::read(a, spec_a, settings));
  DF_TRY(const auto bytes_b, LoadedTensor::read(b, spec_b, settings));
  if (std::ranges::equal(bytes_a.bytes(), bytes_b.bytes())) return entry;
  entry.what = "differs";
  entry.numbers = tensor_difference(spec_a, bytes_a.bytes(), bytes_b.bytes());
  return entry;
}

// Both lists are sorted by key, so they are merged.
Result<std::vector<DiffEntry>> compare_tensors(const Snapshot& a, const Snapshot& b,
                                               const Console& console) {
  std::vector<DiffEntry> entries;
  Progress progress(console, "compare", a.bytes());
  std::uint64_t done = 0;
  auto left = a.tensors().begin();
  auto right = b.tensors().begin();
  while (left != a.tensors().end() || right != b.tensors().end()) {
    const bool at_end_a = left == a.tensors().end();
    const bool at_end_b = right == b.tensors().end();
    if (at_end_b || (!at_end_a && left->key < right->key)) {
      entries.push_back({.key = (left++)->key, .what = "only in A", .numbers = {}});
    } else if (at_end_a || right->key < left->key) {
      entries.push_back({.key = (right++)->key, .what = "only in B", .numbers = {}});
    } else {
      DF_TRY(DiffEntry entry, compare_tensor(a, b, *left, *right));
      entries.push_back(std::move(entry));
      done += spec_bytes(*left).value_or(0);
      progress.update(done);
      ++left;
      ++right;
    }
  }
  return entries;
}

Result<std::map<std::string, std::string>> objects_of(const Snapshot& snapshot) {
  std::map<std::string, std::string> objects;
  if (snapshot.tree().empty()) return objects;
  DF_TRY(const std::vector<TreeLeaf> leaves, walk_tree(snapshot.tree()));
  for (const TreeLeaf& leaf : leaves) objects[leaf.path] = leaf.kind + " " + leaf.text;
  return objects;
}

Result<std::vector<ObjectDiff>> compare_objects(const Snapshot& a, const Snapshot& b) {
  std::vector<ObjectDiff> differing;
  if (a.tree() == b.tree()) return differing;
  DF_TRY(const auto left, objects_of(a));
  DF_TRY(const auto right, objects_of(b));
  for (const auto& [path, text] : left) {
    const auto other = right.find(path);
    if (other == right.end()) {
      differing.push_back({path, text, ""});
    } else if (other->second != text) {
      differing.push_back({path, text, other->second});
    }
  }
  for (const auto& [path, text] : right) {
    if (!left.contains(path)) differing.push_back({path, "", text});
  }
  // What the leaves don't show, such as the order of keys, is a difference all the same.
  if (differing.empty()) {
    differing.push_back({"(tree)", "the order of keys, or an empty value", "differs"});
  }
  return differing;
}

void print_tensors(const std::vector<DiffEntry>& entries, bool all, Console& console) {
  using enum Column::Align;
  Table table({{"TENSOR", kLeft},
               {"", kLeft},
               {"MAX |A-B|", kRight},
               {"L2 REL", kRight},
               {"DIFFERING", kRight},
               {"NAN", kRight}});
  for (const DiffEntry& entry : entries) {
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

nlohmann::ordered_json entry_json(const DiffEntry& entry) {
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
                     const std::vector<DiffEntry>& entries, const std::vector<ObjectDiff>& objects,
                     bool all, Console& console) {
  const auto equal_count = std::ranges::count_if(entries, &DiffEntry::equal);
  nlohmann::ordered_json document = json_document("diff");
  document["a"] = side_json(a);
  document["b"] = side_json(b);
  document["equal_tensors"] = equal_count;
  document["tensors"] = nlohmann::ordered_json::array();
  for (const DiffEntry& entry : entries) {
    if (!entry.equal() || all) document["tensors"].push_back(entry_json(entry));
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
  DF_TRY(const auto entries, compare_tensors(*a.snapshot, *b.snapshot, console));
  DF_TRY(const auto objects, compare_objects(*a.snapshot, *b.snapshot));
  const auto differing = std::ranges::count_if(entries, std::not_fn(&DiffEntry::equal));
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
  Verb verb =
      program.add_verb("diff", "Compare two checkpoints bit by bit; exit 1 where they differ");
  const auto arguments = std::make_shared<DiffArguments>();  // also held by the parser
  verb.value("A", arguments->a, "RUN, RUN@STEP or RUN@latest").required();
  verb.value("B", arguments->b, "The other one; of any run").required();
  verb.flag("--all", arguments->all, "List the equal tensors too");
  verb.footer(
      "--json: {a, b: {path, id, generation, step, save, attempt}, equal_tensors, tensors: [{key,\n"
      "  result, count?, differing?, incomparable?, max_abs?, l2?, l2_relative?}],\n"
      "  objects: [{path, a, b}]}. Incomparable: differing elements without a difference, as NaN.");
  return {verb, [arguments](Console& console) { return run_diff(*arguments, console); }};
}

}  // namespace deepfreeze

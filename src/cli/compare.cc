#include "cli/compare.h"

#include <algorithm>
#include <map>

#include "base/try.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/read_tensor.h"
#include "format/state_tree.h"

namespace deepfreeze {
namespace {

std::string spec_text(const TensorSpec& spec) {
  return dtype_text(spec) + " " + shape_text(spec.shape);
}

bool same_elements(const TensorSpec& a, const TensorSpec& b) {
  return a.dtype == b.dtype && a.shape == b.shape && a.logical_dtype == b.logical_dtype;
}

Result<TensorDiff> compare_tensor(const Snapshot& a, const Snapshot& b, const TensorSpec& spec_a,
                                  const TensorSpec& spec_b) {
  TensorDiff entry{.key = spec_a.key, .what = "equal", .numbers = {}};
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

Result<std::map<std::string, std::string>> objects_of(const Snapshot& snapshot) {
  std::map<std::string, std::string> objects;
  if (snapshot.tree().empty()) return objects;
  DF_TRY(const std::vector<TreeLeaf> leaves, walk_tree(snapshot.tree()));
  for (const TreeLeaf& leaf : leaves) objects[leaf.path] = leaf.kind + " " + leaf.text;
  return objects;
}

}  // namespace

// Both lists are sorted by key, so they are merged.
Result<std::vector<TensorDiff>> compare_tensors(const Snapshot& a, const Snapshot& b,
                                                const Console& console) {
  std::vector<TensorDiff> entries;
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
      DF_TRY(TensorDiff entry, compare_tensor(a, b, *left, *right));
      entries.push_back(std::move(entry));
      done += spec_bytes(*left).value_or(0);
      progress.update(done);
      ++left;
      ++right;
    }
  }
  return entries;
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

}  // namespace deepfreeze

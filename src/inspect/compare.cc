#include "inspect/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <span>

#include "base/try.h"
#include "format/state_tree.h"
#include "inspect/read_tensor.h"
#include "inspect/text.h"

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

Result<std::map<std::string, std::string>> objects_of(const std::string& tree) {
  std::map<std::string, std::string> objects;
  if (tree.empty()) return objects;
  DF_TRY(const std::vector<TreeLeaf> leaves, walk_tree(tree));
  for (const TreeLeaf& leaf : leaves) objects[leaf.path] = leaf.kind + " " + leaf.text;
  return objects;
}

Result<std::vector<ObjectDiff>> compare_trees(const std::string& a, const std::string& b) {
  std::vector<ObjectDiff> differing;
  if (a == b) return differing;
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
  // A difference that the leaves don't show, such as the order of keys, counts too.
  if (differing.empty()) {
    differing.push_back({"(tree)", "the order of keys, or an empty value", "differs"});
  }
  return differing;
}

}  // namespace

// Both lists are sorted by key, so they are merged.
Result<std::vector<TensorDiff>> compare_tensors(const Snapshot& a, const Snapshot& b,
                                                const Watch& watch) {
  std::vector<TensorDiff> entries;
  const OnProgress on_progress = watch("compare", a.bytes());
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
      on_progress(done);
      ++left;
      ++right;
    }
  }
  return entries;
}

Result<std::vector<ObjectDiff>> compare_objects(const Snapshot& a, const Snapshot& b) {
  DF_TRY(std::vector<ObjectDiff> differing, compare_trees(a.tree(), b.tree()));
  const std::size_t of_rank0 = differing.size();
  const std::uint32_t ranks = std::max(a.manifest().world_size, b.manifest().world_size);
  for (std::uint32_t rank = 1; rank < ranks; ++rank) {
    DF_TRY(auto own, compare_trees(a.tree(rank), b.tree(rank)));
    for (ObjectDiff& each : own) {
      const std::span shared(differing.data(), of_rank0);
      if (std::ranges::find(shared, each) != shared.end()) continue;
      each.path = fmt::format("@rank{:05}.{}", rank, each.path);
      differing.push_back(std::move(each));
    }
  }
  return differing;
}

}  // namespace deepfreeze

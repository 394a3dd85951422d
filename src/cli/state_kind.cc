#include "cli/state_kind.h"

#include <algorithm>
#include <array>

#include "base/try.h"
#include "format/state_tree.h"

namespace deepfreeze {
namespace {

// Last parts of names. Of torch, Keras, Flax and Chainer.
constexpr std::array<std::string_view, 7> kForwardNames{
    "running_mean", "running_var", "num_batches_tracked", "moving_mean", "moving_variance",
    "avg_mean",     "avg_var"};
// Members of a generator's state as df.RNG stores it, and of a loader's or sampler's.
constexpr std::array<std::string_view, 2> kRandomMembers{"python.words", "python.gauss_next"};
constexpr std::array<std::string_view, 4> kDataMembers{"_snapshot", "sampler", "_num_yielded",
                                                       "samples_yielded"};
constexpr std::string_view kScheduler = "last_epoch";

bool is_within(std::string_view path, std::string_view object) {
  if (object.empty() || path == object) return true;
  return path.starts_with(object) && path.substr(object.size()).starts_with('.');
}

std::string_view last_part(std::string_view path) { return path.substr(path.rfind('.') + 1); }

// Keys of a rank's own have its number before their path, and a suffix where two were alike.
std::string_view path_of_key(std::string_view key) {
  if (key.starts_with("@rank")) key.remove_prefix(std::min(key.find('.') + 1, key.size()));
  return key.substr(0, key.find('~'));
}

bool has_member(const std::vector<TreeLeaf>& leaves, const std::string& object,
                std::string_view member) {
  const std::string path =
      object.empty() ? std::string(member) : object + "." + std::string(member);
  return std::ranges::any_of(leaves,
                             [&](const TreeLeaf& leaf) { return is_within(leaf.path, path); });
}

StateKind kind_of_stateful(const std::vector<TreeLeaf>& leaves, const std::string& path) {
  const auto has = [&](std::string_view member) { return has_member(leaves, path, member); };
  if (std::ranges::any_of(kRandomMembers, has)) return StateKind::kRandom;
  if (std::ranges::any_of(kDataMembers, has)) return StateKind::kData;
  return has(kScheduler) ? StateKind::kHyperparameter : StateKind::kOther;
}

StateKind kind_of_object(const TreeObject& object, const std::vector<TreeLeaf>& leaves) {
  if (object.type == "module") return StateKind::kWeights;
  if (object.type == "optimizer") return StateKind::kOptimizer;
  return kind_of_stateful(leaves, object.path);
}

}  // namespace

std::string_view name_of(StateKind kind) {
  switch (kind) {
    case StateKind::kWeights:
      return "weights";
    case StateKind::kForwardStatistics:
      return "forward statistics";
    case StateKind::kOptimizer:
      return "optimizer state";
    case StateKind::kHyperparameter:
      return "hyperparameters";
    case StateKind::kRandom:
      return "random generators";
    case StateKind::kData:
      return "data position";
    case StateKind::kOther:
      break;
  }
  return "other state";
}

Result<StateKinds> StateKinds::of(std::string_view tree) {
  StateKinds kinds;
  if (tree.empty()) return kinds;
  std::vector<TreeObject> objects;
  DF_TRY(const std::vector<TreeLeaf> leaves, walk_tree(tree, &objects));
  for (TreeObject& object : objects) {
    const StateKind kind = kind_of_object(object, leaves);
    kinds.places_.push_back({std::move(object.path), kind});
  }
  return kinds;
}

StateKind StateKinds::of_path(std::string_view path) const {
  path = path_of_key(path);
  if (std::ranges::find(kForwardNames, last_part(path)) != kForwardNames.end())
    return StateKind::kForwardStatistics;
  const Place* nearest = nullptr;
  for (const Place& place : places_) {
    if (!is_within(path, place.path)) continue;
    if (nearest == nullptr || place.path.size() > nearest->path.size()) nearest = &place;
  }
  if (nearest == nullptr) return StateKind::kOther;
  const bool is_option = path.contains(".param_groups.");
  if (nearest->kind == StateKind::kOptimizer && is_option) return StateKind::kHyperparameter;
  return nearest->kind;
}

}  // namespace deepfreeze

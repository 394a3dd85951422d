#include "inspect/state_kind.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/try.h"
#include "format/state_tree.h"

namespace deepfreeze {
namespace {

// Last parts of names, in torch, Keras, Flax and Chainer.
constexpr std::array<std::string_view, 7> kForwardNames{
    "running_mean", "running_var", "num_batches_tracked", "moving_mean", "moving_variance",
    "avg_mean",     "avg_var"};
// Members of a generator's state as df.RNG stores it, and of a loader's or sampler's.
constexpr std::array<std::string_view, 2> kRandomMembers{"python.words", "python.gauss_next"};
constexpr std::array<std::string_view, 6> kDataMembers{
    "_snapshot", "sampler", "_num_yielded", "samples_yielded", "current_position", "order"};
constexpr std::string_view kScheduler = "last_epoch";
// Types of objects that hold a whole training, and the prefixes of names within them that are no
// weights.
constexpr std::array<std::string_view, 5> kWholes{"keras", "tf.Module", "nnx", "pytree", "chainer"};
constexpr std::array<std::pair<std::string_view, StateKind>, 6> kPartsOfWhole{{
    {"seed_generator", StateKind::kRandom},
    {"rngs", StateKind::kRandom},
    {"opt_state", StateKind::kOptimizer},
    {"optimizer", StateKind::kOptimizer},
    {"iterator", StateKind::kData},
    {"metrics", StateKind::kOther},
}};

bool is_within(std::string_view path, std::string_view object) {
  if (object.empty() || path == object) return true;
  return path.starts_with(object) && path.substr(object.size()).starts_with('.');
}

std::string_view last_part(std::string_view path) { return path.substr(path.rfind('.') + 1); }

// A rank's own keys have its number before their path, and a suffix if two were alike.
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

// The parts of a path below an object: '.' separates levels of names, '/' those of Keras and
// Chainer.
std::vector<std::string_view> parts_below(std::string_view object, std::string_view path) {
  std::vector<std::string_view> parts;
  std::string_view rest = path.substr(std::min(object.size(), path.size()));
  while (!rest.empty()) {
    const std::size_t end = rest.find_first_of("./");
    if (end != 0) parts.push_back(rest.substr(0, end));
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  }
  return parts;
}

// A loader may lie deep in an object's state: in that of a trainer, say.
bool is_of_data(const std::vector<std::string_view>& parts) {
  return std::ranges::any_of(parts, [](std::string_view part) {
    return std::ranges::find(kDataMembers, part) != kDataMembers.end();
  });
}

StateKind kind_within_whole(const std::vector<std::string_view>& parts) {
  for (const std::string_view part : parts) {
    for (const auto& [start, kind] : kPartsOfWhole) {
      if (part.starts_with(start)) return kind;
    }
  }
  return StateKind::kWeights;
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
  if (object.type == "prng_key" || object.type == "tf.random.Generator") return StateKind::kRandom;
  if (object.type == "tf.data.Iterator") return StateKind::kData;
  if (std::ranges::find(kWholes, object.type) != kWholes.end()) return StateKind::kWeights;
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
    const bool is_whole = std::ranges::find(kWholes, object.type) != kWholes.end();
    kinds.places_.push_back({std::move(object.path), kind, is_whole});
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
  const auto parts = parts_below(nearest->path, path);
  if (nearest->is_whole) return kind_within_whole(parts);
  if (nearest->kind == StateKind::kOther && is_of_data(parts)) return StateKind::kData;
  return nearest->kind;
}

}  // namespace deepfreeze

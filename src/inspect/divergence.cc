#include "inspect/divergence.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "base/try.h"
#include "manifest/history.h"
#include "restore/snapshot.h"

namespace deepfreeze {
namespace {

// Sums in another order differ by at most this after a few steps; other data or code differs by far
// more.
constexpr double kRoundingMax = 1e-3;
constexpr double kInfinite = std::numeric_limits<double>::infinity();

using Steps = std::map<std::uint64_t, Manifest>;

// The steps of the current line, with the newest save of each.
Steps steps_of(const OpenedRun& run) {
  const CurrentLine line(run.listing);
  Steps steps;
  for (Manifest& manifest : newest_first(run.listing)) {
    if (line.contains(manifest.point)) steps.emplace(manifest.point.step, std::move(manifest));
  }
  return steps;
}

std::vector<EnvironmentDiff> compare_environments(const std::map<std::string, std::string>& a,
                                                  const std::map<std::string, std::string>& b) {
  std::map<std::string, EnvironmentDiff> found;
  for (const auto& [name, text] : a) found[name] = {.name = name, .a = text, .b = ""};
  for (const auto& [name, text] : b) {
    found[name].name = name;
    found[name].b = text;
  }
  std::vector<EnvironmentDiff> differing;
  for (auto& [name, each] : found) {
    if (each.a != each.b) differing.push_back(std::move(each));
  }
  return differing;
}

// Causes before effects: random numbers and data come before the values computed from them.
constexpr std::array kCausalOrder{StateKind::kHyperparameter, StateKind::kData,
                                  StateKind::kRandom,         StateKind::kForwardStatistics,
                                  StateKind::kWeights,        StateKind::kOptimizer,
                                  StateKind::kOther};

class Counter {
 public:
  explicit Counter(const StateKinds& kinds) : kinds_(kinds) {}

  void add(const TensorDiff& tensor) {
    ++at(tensor.key).tensors;
    const bool comparable = tensor.numbers && tensor.numbers->incomparable == 0;
    if (tensor.numbers) found_.elements += tensor.numbers->differing;
    const double distance = comparable ? tensor.numbers->l2_relative : kInfinite;
    found_.l2_relative = std::max(found_.l2_relative, distance);
  }
  void add(const ObjectDiff& object) { ++at(object.path).values; }

  FirstDifference take() {
    for (const StateKind kind : kCausalOrder) {
      if (const auto own = by_kind_.find(kind); own != by_kind_.end()) {
        found_.kinds.push_back(std::move(own->second));
      }
    }
    return std::move(found_);
  }

 private:
  KindDiff& at(const std::string& path) {
    const StateKind kind = kinds_.of_path(path);
    KindDiff& own = by_kind_[kind];
    own.kind = kind;
    if (own.first.empty() || path < own.first) own.first = path;
    return own;
  }

  const StateKinds& kinds_;
  std::map<StateKind, KindDiff> by_kind_;
  FirstDifference found_;
};

// Empty if both are equal.
Result<std::optional<FirstDifference>> compare_step(const OpenedRun& run_a, const Manifest& a,
                                                    const OpenedRun& run_b, const Manifest& b,
                                                    const Watch& watch) {
  DF_TRY(const auto snapshot_a, Snapshot::open(*run_a.vfs, a));
  DF_TRY(const auto snapshot_b, Snapshot::open(*run_b.vfs, b));
  DF_TRY(const auto tensors, compare_tensors(*snapshot_a, *snapshot_b, watch));
  DF_TRY(const auto objects, compare_objects(*snapshot_a, *snapshot_b));
  if (objects.empty() && std::ranges::all_of(tensors, &TensorDiff::equal)) return std::nullopt;
  DF_TRY(const StateKinds kinds, StateKinds::of(snapshot_a->tree()));
  Counter counter(kinds);
  for (const TensorDiff& tensor : tensors) {
    if (!tensor.equal()) counter.add(tensor);
  }
  for (const ObjectDiff& object : objects) counter.add(object);
  FirstDifference found = counter.take();
  found.step = a.point.step;
  found.environment = compare_environments(a.annotations.environment, b.annotations.environment);
  return found;
}

bool differs_in(const FirstDifference& divergence, StateKind kind) {
  return std::ranges::find(divergence.kinds, kind, &KindDiff::kind) != divergence.kinds.end();
}

bool differs_in_values_only(const FirstDifference& divergence) {
  return std::ranges::all_of(divergence.kinds, [](const auto& each) { return each.tensors == 0; });
}

bool is_one_element(const FirstDifference& divergence) {
  return divergence.elements == 1 && divergence.kinds.size() == 1 &&
         divergence.kinds[0].tensors == 1 && divergence.kinds[0].values == 0;
}

// Clocks, paths, names: nothing that a training computes with, as far as can be told.
bool may_be_harmless(const FirstDifference& divergence) {
  return differs_in_values_only(divergence) && divergence.kinds.size() == 1 &&
         divergence.kinds[0].kind == StateKind::kOther;
}

std::optional<std::uint64_t> step_before(const Steps& a, const Steps& b, std::uint64_t step) {
  std::optional<std::uint64_t> found;
  for (auto each = a.begin(); each != a.lower_bound(step); ++each) {
    if (b.contains(each->first)) found = each->first;
  }
  return found;
}

}  // namespace

std::string likely_cause(const FirstDifference& divergence, bool is_first_step) {
  const auto in = [&](StateKind kind) { return differs_in(divergence, kind); };
  if (may_be_harmless(divergence)) {
    return "only plain values differ: counters, times, paths or metrics of the program";
  }
  if (is_first_step) {
    return "they differ at the first step that both have: other seeds, first weights, data or code "
           "from the beginning, or a divergence between there and this step";
  }
  if (is_one_element(divergence)) {
    return "one element of one tensor differs: memory that flipped a bit, or code that writes "
           "single elements";
  }
  if (in(StateKind::kHyperparameter)) {
    return "options of the optimizer or scheduler differ: another configuration, or one that was "
           "not restored";
  }
  if (in(StateKind::kData)) {
    return "the data come from another position: a loader that was not restored, another number "
           "of workers or ranks, another shuffling";
  }
  if (in(StateKind::kRandom)) {
    return "random numbers were drawn in another number or order: a generator that was seeded "
           "anew or not restored, or something drew in one run alone (evaluation, logging, a "
           "worker)";
  }
  if (divergence.l2_relative <= kRoundingMax) {
    return "weights differ by rounding alone, beside equal random numbers: sums in another order "
           "(threads, ranks, algorithms that are not deterministic)";
  }
  return "weights differ by more than rounding, beside equal random numbers: other data, other "
         "code, or state that is not saved";
}

Result<Comparison> find_divergence(const OpenedRun& a, const OpenedRun& b, const Watch& watch) {
  const Steps steps_a = steps_of(a);
  const Steps steps_b = steps_of(b);
  Comparison found;
  for (const auto& [step, manifest] : steps_a) {
    const auto other = steps_b.find(step);
    if (other == steps_b.end()) continue;
    ++found.common_steps;
    if (found.divergence) continue;
    DF_TRY(found.divergence, compare_step(a, manifest, b, other->second, watch));
    if (found.divergence && may_be_harmless(*found.divergence)) {
      if (!found.values) found.values = std::move(found.divergence);
      found.divergence.reset();
    }
    if (!found.divergence) found.equal_through = step;
  }
  if (found.common_steps == 0) {
    return fail(ErrorCode::kNotFound,
                "compare: " + a.path + " and " + b.path + " have no step that both have committed");
  }
  if (!found.divergence && found.values) {
    found.divergence.swap(found.values);
    found.equal_through = step_before(steps_a, steps_b, found.divergence->step);
  }
  if (found.divergence) {
    found.divergence->cause = likely_cause(*found.divergence, !found.equal_through);
  }
  return found;
}

}  // namespace deepfreeze

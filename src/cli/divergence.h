// The first step at which two runs differ, and what that points to.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/compare.h"
#include "cli/state_kind.h"
#include "restore/opened_run.h"

namespace deepfreeze {

// What differs of one kind; `first` by the order of names.
struct KindDiff {
  StateKind kind = StateKind::kOther;
  std::size_t tensors = 0;
  std::size_t values = 0;
  std::string first;
};

struct EnvironmentDiff {
  std::string name;
  std::string a;  // empty where it is not recorded
  std::string b;
};

struct FirstDifference {
  std::uint64_t step = 0;
  std::vector<KindDiff> kinds;  // causes before effects
  std::vector<EnvironmentDiff> environment;
  std::uint64_t elements = 0;  // that differ, of all tensors that can be compared
  double l2_relative = 0;      // the greatest of a tensor; infinite where one is not comparable
  std::string cause;           // the likely one, for people
};

struct Comparison {
  std::size_t common_steps = 0;
  std::optional<std::uint64_t> equal_through;  // the last step before they differ
  // The first step at which more differs than plain values of no known kind, which clocks and paths
  // do in runs that are equal otherwise; where there is none, the first at which those do.
  std::optional<FirstDifference> divergence;  // none: all common steps are equal
  std::optional<FirstDifference> values;      // the first with such values, before `divergence`
};

// Compares the steps that both lines have, oldest first, until one differs. kNotFound where there
// is none. Reads all data of what it compares.
[[nodiscard]] Result<Comparison> find_divergence(const OpenedRun& a, const OpenedRun& b,
                                                 const Console& console);

// Rules of thumb, by which kinds differ and how much; the docs list them. Pure.
[[nodiscard]] std::string likely_cause(const FirstDifference& divergence, bool is_first_step);

}  // namespace deepfreeze

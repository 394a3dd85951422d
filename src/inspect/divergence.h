// The first step at which two runs differ, and its likely cause.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "inspect/compare.h"
#include "inspect/state_kind.h"
#include "restore/opened_run.h"

namespace deepfreeze {

// The differences of one kind of state; `first` by the order of names.
struct KindDiff {
  StateKind kind = StateKind::kOther;
  std::size_t tensors = 0;
  std::size_t values = 0;
  std::string first;
};

struct EnvironmentDiff {
  std::string name;
  std::string a;  // empty if it is not recorded
  std::string b;
};

struct FirstDifference {
  std::uint64_t step = 0;
  std::vector<KindDiff> kinds;  // causes before effects
  std::vector<EnvironmentDiff> environment;
  std::uint64_t elements = 0;  // that differ, of all tensors that can be compared
  double l2_relative = 0;      // the greatest of a tensor; infinite if one is not comparable
  std::string cause;           // the likely one, for people
};

struct Comparison {
  std::size_t common_steps = 0;
  std::optional<std::uint64_t> equal_through;  // the last step before they differ
  // The first step with a difference other than plain values of no known kind, in which clocks and
  // paths differ even between equal runs; if there is none, the first step at which such values
  // differ.
  std::optional<FirstDifference> divergence;  // none: all common steps are equal
  std::optional<FirstDifference> values;      // the first with such values, before `divergence`
};

// Compares the steps that both lines have, oldest first, until one differs. kNotFound if there is
// none. Reads all data of the steps that it compares.
[[nodiscard]] Result<Comparison> find_divergence(const OpenedRun& a, const OpenedRun& b,
                                                 const Watch& watch);

// Rules of thumb, by which kinds differ and how much; the docs list them. Pure.
[[nodiscard]] std::string likely_cause(const FirstDifference& divergence, bool is_first_step);

}  // namespace deepfreeze

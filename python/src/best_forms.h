// Which checkpoint is the best, as Python says it.
#pragma once

#include <cstddef>
#include <string>
#include <tuple>

#include "deepfreeze/options.h"
#include "errors.h"

namespace deepfreeze::python {

// Metric, "min" or "max", how many.
using BestForm = std::tuple<std::string, std::string, std::size_t>;

inline Keep::Better better_of(const std::string& name) {
  if (name == "min") return Keep::Better::kMin;
  if (name == "max") return Keep::Better::kMax;
  raise(Error(ErrorCode::kInvalidArgument, "best by \"" + name + "\": not min or max"));
}

inline std::string name_of(Keep::Better better) {
  return better == Keep::Better::kMin ? "min" : "max";
}

inline Keep::Best best_of_form(const BestForm& form) {
  const auto& [metric, better, count] = form;
  return {.metric = metric, .better = better_of(better), .count = count};
}

}  // namespace deepfreeze::python

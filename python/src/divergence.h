// Divergences as Python gets them: pairs of a key and the ranks that differ.
#pragma once

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <utility>
#include <vector>

#include "deepfreeze/tensor.h"

namespace deepfreeze::python {

inline std::vector<std::pair<std::string, std::vector<std::uint32_t>>> pairs_of(
    const std::vector<Divergence>& diverged) {
  std::vector<std::pair<std::string, std::vector<std::uint32_t>>> pairs;
  pairs.reserve(diverged.size());
  for (const Divergence& one : diverged) pairs.emplace_back(one.key, one.ranks);
  return pairs;
}

}  // namespace deepfreeze::python

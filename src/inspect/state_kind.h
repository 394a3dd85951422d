// The kind of state that a tensor or value is, judged by the objects around it and their usual
// names.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "deepfreeze/result.h"

namespace deepfreeze {

enum class StateKind : std::uint8_t {
  kOther,
  kWeights,
  kForwardStatistics,  // written by a forward pass, as in batch normalisation
  kOptimizer,
  kHyperparameter,  // options of an optimizer, a scheduler
  kRandom,
  kData,  // the position of a loader or sampler
};

[[nodiscard]] std::string_view name_of(StateKind kind);  // "weights", "random generators"

// The kinds of the values of one state, found from its tree. Pure; any thread may ask.
class StateKinds {
 public:
  // kCorrupt as walk_tree(). An empty tree knows no objects.
  [[nodiscard]] static Result<StateKinds> of(std::string_view tree);
  // `path`: of a value in the tree, or a tensor's key.
  [[nodiscard]] StateKind of_path(std::string_view path) const;

 private:
  struct Place {
    std::string path;  // of an object; all below it is of that kind
    StateKind kind = StateKind::kOther;
    bool is_whole = false;  // a model with its optimizer and more, told apart by names within
  };
  std::vector<Place> places_;
};

}  // namespace deepfreeze

// The inputs that each target starts from: golden files, small ones of every kind, all attacks of
// tests/attacks, and corpus/<target>.txt, which fuzzing has found. Reads files of the source tree.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace deepfreeze {

struct Seeds {
  std::vector<std::string> own;    // written for it
  std::vector<std::string> found;  // of its corpus
};
[[nodiscard]] Seeds seeds_of(std::string_view target);

// Seeds for whole directories: the targets "run" and "attempt".
[[nodiscard]] std::vector<std::string> run_seeds();
[[nodiscard]] std::vector<std::string> attempt_seeds();

}  // namespace deepfreeze

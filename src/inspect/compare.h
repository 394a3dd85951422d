// The differences between two checkpoints: tensors bit by bit, other values by their text.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "inspect/reading.h"
#include "inspect/tensor_stats.h"
#include "restore/snapshot.h"

namespace deepfreeze {

// `numbers` is set if both sides have elements to compare, and they differ.
struct TensorDiff {
  std::string key;
  std::string what;  // "equal", "differs", "only in A", "only in B", "F32 [3] / F32 [4]"
  std::optional<TensorDifference> numbers;
  [[nodiscard]] bool equal() const { return what == "equal"; }
};

struct ObjectDiff {
  std::string path;
  std::string a;  // "kind value"; empty if it is missing
  std::string b;
  bool operator==(const ObjectDiff&) const = default;
};

// Compares all tensors of both, by key. Reads and verifies all data; `watch` sees how far it is.
[[nodiscard]] Result<std::vector<TensorDiff>> compare_tensors(const Snapshot& a, const Snapshot& b,
                                                              const Watch& watch);
// Compares all ranks' trees and returns only the differences; the prefix "@rank00001." marks values
// of rank 1 that rank 0 does not share.
[[nodiscard]] Result<std::vector<ObjectDiff>> compare_objects(const Snapshot& a, const Snapshot& b);

}  // namespace deepfreeze
